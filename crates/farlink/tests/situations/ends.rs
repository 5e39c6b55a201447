//! However the daemon ends, or stands still, TCP flows again soon, and nothing of it is left that
//! keeps traffic from flowing. In network namespaces, as root.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::bed::{Bed, Plan};

const PORT: u16 = 7100;
/// A new connection is tried for so long, then the next one.
const TRY: Duration = Duration::from_millis(60);
const PATIENCE: Duration = Duration::from_secs(10);
/// The first attempt may hang on a packet that was lost with the process.
const BESIDE: Duration = Duration::from_millis(100);

/// How it ends, and within what time TCP flows again.
const ENDS: &[(&str, &str, Duration)] = &[
    ("it is killed", "KILL", Duration::from_millis(100)),
    // What a panic and a fault end in. A core dump would keep the devices until it is written.
    ("it aborts", "ABRT", Duration::from_millis(100)),
    ("it has a fault", "ILL", Duration::from_millis(100)),
    // A small process beside it ends it.
    ("it is stopped", "STOP", Duration::from_secs(3)),
];

#[test]
fn tcp_flows_again_soon_however_it_ends() {
    let may = farlink_linux::caps::can_administer() && std::fs::File::open("/dev/net/tun").is_ok();
    if !may {
        let _ = writeln!(std::io::stderr(), "SKIPPED tcp_flows_again_soon_however_it_ends: it takes root");
        return;
    }
    let has_bump = farlink_linux::bump::Bump::is_possible().is_ok();
    for method in ["policy", "bump"].into_iter().filter(|m| *m == "policy" || has_bump) {
        for (n, (what, signal, within)) in ENDS.iter().enumerate() {
            // Shared machines stand still now and then: the best of three counts.
            let took = (0..3).map(|round| one(200 + 10 * n + round, method, signal)).min().unwrap();
            println!("{method}: {what}: TCP flows after {:.3} s", took.as_secs_f64());
            assert!(took <= *within + BESIDE, "{method}: {what}: TCP flows after {took:?}");
        }
    }
}

/// The time from the signal until a connection that was opened afterwards has got its answer.
fn one(n: usize, method: &str, signal: &str) -> Duration {
    let plan = Plan { traffic: "none".into(), ..Plan::default() };
    let mut bed = Bed::new(n, method, &plan);
    bed.come_about();
    let listener = bed.server.run(|| Ok(TcpListener::bind(("0.0.0.0", PORT)).unwrap())).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    let client = bed.client.clone();
    let fetch = || client.run(|| Ok(fetch().is_ok())).unwrap();
    let end = Instant::now() + PATIENCE;
    while !fetch() {
        assert!(Instant::now() < end, "nothing gets through at first\n{}", bed.log());
    }
    bed.signal(signal);
    let ended = Instant::now();
    while !fetch() {
        assert!(ended.elapsed() < PATIENCE, "nothing gets through any more");
    }
    let took = ended.elapsed();
    assert!(bed.has_ended(), "it is stopped still");
    bed.nothing_is_left(n.is_multiple_of(2));
    took
}

fn answer(mut stream: TcpStream) {
    let _ = stream.write_all(&[1; 1000]);
}

fn fetch() -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&format!("10.74.3.2:{PORT}").parse().unwrap(), TRY)?;
    stream.set_read_timeout(Some(TRY))?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    if all.len() == 1000 { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}
