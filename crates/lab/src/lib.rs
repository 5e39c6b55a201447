//! The laboratory: topologies, workloads, baselines, scenarios, reports.

pub mod baseline;
pub mod behaviour;
pub mod build;
pub mod capture;
pub mod gateway;
pub mod helper;
pub mod hosts;
pub mod html;
pub mod interrupt;
pub mod kinds;
pub mod limit;
pub mod link;
pub mod netns;
pub mod plot;
pub mod process;
pub mod progress;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod settings;
pub mod sh;
pub mod simulate;
pub mod state;
pub mod table;
pub mod topology;
pub mod workload;
