//! The emulator's control socket: one JSON object per line in, one per line out.
//!
//! `{"set": {"rate_bps": 8000000, "a_to_b.delay_ms": 250}}` changes parameters (without a prefix,
//! of both directions), all or none; `{"set": {"contacts": "0s-10s 30s-40s@2M",
//! "contact_period_ms": 60000}}` gives the link a schedule; `{"stats": true}` reports; `{"carried":
//! true}` reports the bytes that left each line by time; with `{"begin": true}` schedules begin
//! now, with `{"begin": "data"}` when the first data has arrived. The answer is `{"ok": true, ...}`
//! or `{"error": "..."}`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use farlink_channel::{CARRIED_INTERVAL_MS, OfConnection};
use serde_json::{Value, json};

use super::{Control, DIRECTIONS};
use crate::error::{Context, Result};

/// Longest line that is read.
const LINE_MAX_BYTES: u64 = 64 * 1024;
/// A client that says nothing for so long is let go.
const PATIENCE: Duration = Duration::from_secs(600);

/// Serves the control socket until dropped.
/// After an error of the socket.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Server {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(path: &Path, control: Arc<Control>) -> Result<Self> {
        // A socket that a killed predecessor left.
        let _ = std::fs::remove_file(path);
        let listener =
            UnixListener::bind(path).context(|| format!("opening the control socket {}", path.display()))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                match stream {
                    Ok(stream) => {
                        let control = Arc::clone(&control);
                        std::thread::spawn(move || serve(stream, &control));
                    }
                    // Without descriptors left it would fail again at once.
                    Err(_) => std::thread::sleep(ERROR_PAUSE),
                }
            }
        });
        Ok(Self { path: path.to_owned(), is_over, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread out of accept.
        let _ = UnixStream::connect(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(stream: UnixStream, control: &Control) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        match reader.by_ref().take(LINE_MAX_BYTES).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut reply = answer(&line, control).to_string();
        reply.push('\n');
        if writer.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(line: &str, control: &Control) -> Value {
    match handle(line, control) {
        Ok(value) => value,
        Err(error) => json!({ "error": error }),
    }
}

fn handle(line: &str, control: &Control) -> std::result::Result<Value, String> {
    let request: Value = serde_json::from_str(line).map_err(|e| format!("not JSON: {e}"))?;
    if let Some(wanted) = request.get("set").and_then(Value::as_object) {
        let settings: Vec<(String, String)> = wanted
            .iter()
            .map(|(key, value)| {
                (key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            })
            .collect();
        control.set(&settings)?;
        return Ok(json!({ "ok": true }));
    }
    if request.get("stats").is_some() {
        let stats = control.stats().map_err(|e| e.to_string())?;
        let mut reply = json!({ "ok": true });
        for (name, stats) in DIRECTIONS.iter().zip(&stats) {
            reply[*name] = super::stats_json(stats);
        }
        return Ok(reply);
    }
    if request.get("carried").is_some() {
        let stats = control.stats().map_err(|e| e.to_string())?;
        let mut reply = json!({ "ok": true, "interval_ms": CARRIED_INTERVAL_MS });
        for (name, stats) in DIRECTIONS.iter().zip(&stats) {
            let carried = &stats.carried;
            let of_connection =
                |c: &OfConnection| json!({ "first_interval": c.first_interval, "bytes": c.bytes });
            let connections: Vec<_> = carried.connections.iter().map(of_connection).collect();
            reply[*name] = json!({
                "bytes": carried.bytes, "queue_bytes": carried.queue_bytes, "connections": connections,
                "xcp_bytes": carried.xcp_bytes, "xcp_queue_bytes": carried.xcp_queue_bytes,
                "acks": carried.acks, "acked_bytes": carried.acked_bytes,
            });
        }
        return Ok(reply);
    }
    if let Some(when) = request.get("begin") {
        control.begin(when == "data").map_err(|e| e.to_string())?;
        return Ok(json!({ "ok": true }));
    }
    Err("a line is {\"set\": {KEY: VALUE, ...}}, {\"stats\": true}, {\"carried\": true} or {\"begin\": true|\"data\"}"
        .to_owned())
}
