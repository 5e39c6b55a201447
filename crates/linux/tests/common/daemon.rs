//! A gateway on a router of a test.

use farlink_gateway::config::{Config, Interface};
use farlink_gateway::{IfaceId, Status};
use farlink_linux::divert::{DivertConfig, Method};
use farlink_linux::driver::{Driver, DriverConfig, DriverStatus, End};
use farlink_linux::event_loop::Waker;

use super::Host;

/// Two interfaces, no link.
pub fn config(journal: Option<std::path::PathBuf>) -> DriverConfig {
    let interface = |id, name: &str| Interface {
        id: IfaceId(id),
        name: name.to_owned(),
        domain: 0,
        addresses: Vec::new(),
        link: None,
    };
    let gateway =
        Config { interfaces: vec![interface(1, "left"), interface(2, "right")], ..Config::default() };
    let divert = DivertConfig { method: Method::Policy, ..DivertConfig::default() };
    DriverConfig { journal, divert, ..DriverConfig::new(gateway) }
}

type Question = Box<dyn FnOnce(&mut farlink_linux::driver::Attendance<'_>) + Send>;

/// A driver on a thread inside the router.
pub struct Daemon {
    thread: std::thread::JoinHandle<farlink_linux::Result<End>>,
    waker: std::sync::Arc<Waker>,
    questions: std::sync::mpsc::Sender<Question>,
}

impl Daemon {
    pub fn start(router: &Host, config: DriverConfig) -> Self {
        let (ready, started) = std::sync::mpsc::channel();
        let (questions, asked) = std::sync::mpsc::channel::<Question>();
        let thread = router.0.spawn(move || {
            let driver = Driver::start(config)?;
            ready.send(driver.waker()).unwrap();
            driver.run(None, |attendance| {
                for question in asked.try_iter() {
                    question(attendance);
                }
            })
        });
        match started.recv() {
            Ok(waker) => Self { thread, waker, questions },
            Err(_) => panic!("{:?}", thread.join().unwrap().err()),
        }
    }
    pub fn status(&self) -> (Status, DriverStatus) {
        let (answer, answered) = std::sync::mpsc::channel();
        self.ask(Box::new(move |a| {
            answer.send((a.gateway().status(), a.status())).unwrap();
        }));
        answered.recv().unwrap()
    }
    pub fn ask(&self, question: Question) {
        self.questions.send(question).unwrap();
        self.waker.wake();
    }
    pub fn drain(self) -> End {
        self.ask(Box::new(|a| a.drain()));
        self.thread.join().unwrap().unwrap()
    }
}
