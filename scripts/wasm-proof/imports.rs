//! Lists what a WebAssembly module imports, one per line; and fails when it exports no function
//! (then it is not the module that was meant). Compiled with rustc alone. Format: WebAssembly core
//! specification 2.0, section 5.5.

use std::process::ExitCode;

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }
    /// An unsigned LEB128 number.
    fn number(&mut self) -> Option<usize> {
        let mut value = 0usize;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    fn name(&mut self) -> Option<String> {
        let n = self.number()?;
        String::from_utf8(self.take(n)?.to_vec()).ok()
    }
    fn limits(&mut self) -> Option<()> {
        let has_max = self.byte()? & 1 == 1;
        self.number()?;
        if has_max {
            self.number()?;
        }
        Some(())
    }
}

/// Imports, and the number of exported functions.
fn read(module: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut r = Reader(module);
    if r.take(8)? != b"\0asm\x01\0\0\0" {
        return None;
    }
    let (mut imports, mut exported_functions) = (Vec::new(), 0);
    while !r.0.is_empty() {
        let (id, size) = (r.byte()?, r.number()?);
        let mut section = Reader(r.take(size)?);
        match id {
            2 => {
                for _ in 0..section.number()? {
                    let (module, name) = (section.name()?, section.name()?);
                    let kind = section.byte()?;
                    match kind {
                        0 => drop(section.number()?),
                        1 => (section.byte()?, section.limits()?).1,
                        2 => section.limits()?,
                        3 => drop(section.take(2)?),
                        _ => return None,
                    }
                    imports.push(format!("{module}.{name}"));
                }
            }
            7 => {
                for _ in 0..section.number()? {
                    section.name()?;
                    exported_functions += usize::from(section.byte()? == 0);
                    section.number()?;
                }
            }
            _ => {}
        }
    }
    Some((imports, exported_functions))
}

fn main() -> ExitCode {
    let path = std::env::args().nth(1).expect("usage: imports MODULE.wasm");
    let module = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    match read(&module) {
        Some((imports, exported)) if exported > 0 => {
            imports.iter().for_each(|i| println!("{i}"));
            ExitCode::SUCCESS
        }
        Some(_) => {
            eprintln!("{path}: no function is exported");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("{path}: not a WebAssembly module");
            ExitCode::FAILURE
        }
    }
}
