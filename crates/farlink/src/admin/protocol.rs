//! What is said over the admin socket. Documented for other programs in docs/operating.md.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request: one line, for example `{"cmd": "flows", "limit": 100}`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A snapshot of the gateway.
    Status {},
    /// Its flows, in table order.
    Flows {
        /// At most so many.
        #[serde(default = "flows_limit")]
        limit: usize,
    },
    /// Change a running parameter.
    Set {
        /// Which.
        key: String,
        /// To what.
        value: String,
    },
    /// Read the configuration again.
    Reload {},
    /// Start draining; the gateway ends when it is done.
    Drain {},
    /// What the driver knows about its diversion.
    Check {},
    /// Follow one connection, packet by packet.
    Trace {
        /// Endpoints: an address, `ADDRESS:PORT`, or two of them with a comma between.
        flow: String,
        /// For so long.
        seconds: u64,
    },
    /// What the trace has recorded since the last time.
    TraceRead {},
    /// End the trace.
    TraceStop {},
    /// A link went down or came back.
    Link {
        /// Name of the link, or of its interface.
        link: String,
        /// Whether it carries.
        up: bool,
    },
}

fn flows_limit() -> usize {
    1000
}

/// The answer: one line, `{"ok": true, "result": ...}` or `{"ok": false, "error": "..."}`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Response {
    /// Whether it was done.
    pub ok: bool,
    /// What was asked for.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub result: Value,
    /// What is wrong, and what is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Response {
    /// Done, with something to show.
    pub fn ok(result: impl Serialize) -> Self {
        match serde_json::to_value(result) {
            Ok(result) => Self { ok: true, result, error: None },
            Err(e) => Self::error(format!("the answer cannot be written as JSON: {e}")),
        }
    }
    /// Not done.
    pub fn error(error: impl Into<String>) -> Self {
        Self { ok: false, result: Value::Null, error: Some(error.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_documented() {
        let read = |line| serde_json::from_str::<Request>(line);
        assert_eq!(read(r#"{"cmd":"status"}"#).unwrap(), Request::Status {});
        assert_eq!(read(r#"{"cmd":"flows"}"#).unwrap(), Request::Flows { limit: 1000 });
        assert_eq!(read(r#"{"cmd":"flows","limit":3}"#).unwrap(), Request::Flows { limit: 3 });
        let set = Request::Set { key: "link.sat0.rate_bps".into(), value: "1".into() };
        assert_eq!(read(r#"{"cmd":"set","key":"link.sat0.rate_bps","value":"1"}"#).unwrap(), set);
        assert!(read(r#"{"cmd":"halt"}"#).is_err());
        assert!(read(r#"{"cmd":"status","more":1}"#).is_err());
    }
}
