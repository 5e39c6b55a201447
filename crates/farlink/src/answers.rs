//! What the daemon answers to those who ask by its socket, and what becomes of SIGHUP.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use farlink_gateway::engine_status::FlowStatus;
use farlink_linux::divert::DivertConfig;
use farlink_linux::driver::{Attendance, DiversionStatus, DriverStatus};
use serde::Serialize;
use serde_json::{Value, json};

use crate::admin::protocol::{Request, Response};
use crate::admin::server::{Answer, Call};
use crate::check::{Interface, Running};
use crate::{log, reload, settings};

/// Flows that one answer may hold.
const FLOWS_MAX: usize = 1_000_000;
/// Places of the table of flows that are looked at between two batches of packets.
const PLACES_AT_ONCE: u32 = 512;

/// What `farlink status --json` prints.
#[derive(Serialize)]
struct Snapshot {
    version: &'static str,
    uptime_seconds: u64,
    #[serde(flatten)]
    gateway: farlink_gateway::Status,
    interfaces: Vec<Value>,
    diversion: DiversionStatus,
    driver: Value,
    /// What `farlink set` changes, and what is in force.
    settings: serde_json::Map<String, Value>,
}

/// Answers requests on the event loop's thread, as values: whoever has asked makes the text of
/// them. Long lists are collected a part at a time, between two batches of packets, and files are
/// read by a thread.
pub struct Answerer {
    /// What is diverted, and how.
    pub divert: DivertConfig,
    /// How long a drain may take.
    pub drain_timeout_seconds: u64,
    /// Who reads the configuration again, and knows what it was.
    pub source: reload::Source,
    pid: u32,
    /// Those who wait for it, in order; `None`: a signal has asked, and nobody waits.
    reloads: VecDeque<Option<Call>>,
    /// Lists of flows that are not complete.
    lists: Vec<List>,
}

/// A list of flows that is being collected.
struct List {
    call: Call,
    flows: Vec<FlowStatus>,
    next: u32,
    left: usize,
}

impl Answerer {
    /// Nobody has asked anything yet.
    pub fn new(divert: DivertConfig, drain_timeout_seconds: u64, source: reload::Source) -> Self {
        let pid = std::process::id();
        Self { divert, drain_timeout_seconds, source, pid, reloads: VecDeque::new(), lists: Vec::new() }
    }

    /// Answers what has been asked.
    pub fn answer_all(&mut self, calls: &Receiver<Call>, attendance: &mut Attendance<'_>) {
        if attendance.take_reload() {
            self.reload(None);
        }
        while let Some(read) = self.source.next_read() {
            let outcome = self.source.reload_and_tell(read, attendance);
            if let Some(call) = self.reloads.pop_front().flatten() {
                call.answer(move || match outcome {
                    Ok(outcome) => Response::ok(outcome),
                    Err(wrong) => Response::error(wrong),
                });
            }
        }
        while let Ok(call) = calls.try_recv() {
            match call.request {
                Request::Reload {} => self.reload(Some(call)),
                Request::Flows { limit } => {
                    let left = limit.min(FLOWS_MAX);
                    self.lists.push(List { call, flows: Vec::new(), next: 0, left });
                }
                _ => {
                    let answer = self.answer(&call.request, attendance);
                    call.answer(answer);
                }
            }
        }
        for mut list in std::mem::take(&mut self.lists) {
            match list.go_on(attendance) {
                true => list.call.answer(move || Response::ok(list.flows)),
                false => self.lists.push(list),
            }
        }
        if !self.lists.is_empty() {
            attendance.attend_again();
        }
    }

    /// The configuration is read again soon.
    fn reload(&mut self, call: Option<Call>) {
        if self.source.read() {
            self.reloads.push_back(call);
        } else if let Some(call) = call {
            call.answer(|| Response::error("the configuration is being read already"));
        }
    }

    fn answer(&self, request: &Request, attendance: &mut Attendance<'_>) -> Answer {
        let now = attendance.now();
        let done = |outcome: Result<(), String>| match outcome {
            Ok(()) => ok(()),
            Err(wrong) => error(wrong),
        };
        match request {
            Request::Status {} => {
                let driver = attendance.status();
                let settings = settings::in_force(attendance).into_iter();
                let settings: Vec<_> = settings.collect();
                let gateway = attendance.gateway().status_at(now);
                Box::new(move || {
                    Response::ok(Snapshot {
                        settings: settings.into_iter().map(|(key, value)| (key, value.into())).collect(),
                        version: env!("CARGO_PKG_VERSION"),
                        uptime_seconds: driver.uptime_s as u64,
                        gateway,
                        interfaces: driver.ports.iter().map(port).collect(),
                        driver: driver_counters(&driver),
                        diversion: driver.diversion,
                    })
                })
            }
            // These take more than one turn.
            Request::Flows { .. } | Request::Reload {} => error("it is being answered"),
            Request::Set { key, value } => {
                let outcome = settings::set(attendance, key, value).map_err(|not_set| not_set.to_string());
                match &outcome {
                    Ok(()) => tracing::info!(key, value, "set"),
                    Err(wrong) => tracing::warn!(key, value, "not set: {wrong}"),
                }
                done(outcome)
            }
            Request::Trace { flow, seconds } => {
                let until = now + farlink_wire::Duration::from_secs(*seconds);
                let wish = crate::trace_cmd::wish(flow).map_err(|e| e.to_string());
                let start =
                    |wish| attendance.gateway().trace(now, Some((wish, until))).map_err(str::to_owned);
                done(wish.and_then(start))
            }
            Request::TraceRead {} => match attendance.gateway().take_trace(now) {
                Some(taken) => ok(taken),
                None => error("there is no trace: it has ended, or nobody read it for ten seconds"),
            },
            Request::TraceStop {} => done(attendance.gateway().trace(now, None).map_err(str::to_owned)),
            Request::Link { link, up } => done(self.link_state(link, *up, attendance)),
            Request::Drain {} => {
                attendance.drain();
                ok(json!({"drain_timeout_seconds": self.drain_timeout_seconds}))
            }
            Request::Check {} => ok(self.running(attendance)),
        }
    }

    fn link_state(&self, name: &str, up: bool, attendance: &mut Attendance<'_>) -> Result<(), String> {
        let all = links(attendance);
        let known = all.iter().find(|(link, interface)| link == name || interface == name);
        let interface = known.map(|(_, interface)| interface.clone());
        // An unknown name is the driver's to refuse.
        if interface.is_none() && attendance.status().ports.iter().any(|port| port.interface == name) {
            let links: Vec<_> = all.into_iter().map(|(link, _)| link).collect();
            return Err(format!("no link is declared on {name}; links: {}", links.join(", ")));
        }
        attendance.link_state(interface.as_deref().unwrap_or(name), up)?;
        tracing::info!(link = name, up, "link state, as told");
        Ok(())
    }

    fn running(&self, attendance: &mut Attendance<'_>) -> Running {
        let links = links(attendance);
        let is_link = |name: &str| links.iter().any(|(_, interface)| interface == name);
        let (ports, diverted) = (attendance.status().ports, attendance.diverted());
        let diversion = attendance.diversion();
        let interfaces = ports.into_iter().map(|p| Interface {
            is_link: is_link(&p.interface),
            device_index: diverted.iter().find(|d| d.tun == p.tun).map_or(0, |d| d.tun_index),
            name: p.interface,
            device: p.tun,
        });
        Running {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: attendance.status().uptime_s as u64,
            pid: self.pid,
            method: diversion.method.to_owned(),
            instance: self.divert.instance.clone(),
            mark_mask: self.divert.mark_mask,
            table_base: self.divert.table_base,
            rule_priority: self.divert.rule_priority,
            interfaces: interfaces.collect(),
            whole: attendance.whole(),
            shims: self.divert.shims(),
            in_place: Some(diversion.in_place),
            captures: diversion.captures,
            trouble: diversion.found,
        }
    }
}

impl List {
    /// Collects a part. Whether that was the last one.
    fn go_on(&mut self, attendance: &mut Attendance<'_>) -> bool {
        let now = attendance.now();
        let (flows, next) = attendance.gateway().flows_from(now, self.next, PLACES_AT_ONCE);
        self.flows.extend(flows.into_iter().take(self.left - self.flows.len()));
        self.next = next.unwrap_or_default();
        next.is_none() || self.flows.len() >= self.left
    }
}

fn ok(result: impl Serialize + Send + 'static) -> Answer {
    Box::new(move || Response::ok(result))
}

fn error(wrong: impl Into<String>) -> Answer {
    let wrong = wrong.into();
    Box::new(move || Response::error(wrong))
}

/// The links that are declared now, with their interfaces.
fn links(attendance: &mut Attendance<'_>) -> Vec<(String, String)> {
    let declared =
        attendance.gateway().named().filter_map(|i| Some((i.link.as_ref()?.name.clone(), i.name.clone())));
    declared.collect()
}

/// A port under the names that the manual uses, first.
pub fn port(port: &farlink_linux::driver::PortStatus) -> Value {
    let mut value = json!({"name": port.interface, "device": port.tun});
    if let (Some(to), Ok(Value::Object(from))) = (value.as_object_mut(), serde_json::to_value(port)) {
        to.extend(from.into_iter().filter(|(key, _)| key != "interface" && key != "tun"));
    }
    value
}

pub fn driver_counters(driver: &DriverStatus) -> Value {
    let mut value = json!(driver.counters);
    value["route_lookups"] = json!(driver.route_lookups);
    value["spread"] = json!(driver.spread);
    value["profile"] = json!(driver.profile);
    value["journal_refused"] = json!(driver.journal_refused);
    value["log_lines_lost"] = json!(log::lines_lost());
    value
}
