//! What `farlink set` changes: the gateway's parameters, and what the driver has beside them.

use farlink_gateway::NotSet;
use farlink_linux::driver::Attendance;

/// A parameter: its name, what it means, and how it is read and changed.
struct Setting(
    &'static str,
    &'static str,
    fn(&mut Attendance<'_>) -> String,
    fn(&mut Attendance<'_>, &str) -> Result<(), String>,
);

/// Those that are the driver's: the datapath is measured where packets are read and written. All
/// others stand in the table of `crates/gateway/src/settings.rs`.
const OF_DRIVER: [Setting; 1] = [Setting(
    "profile",
    "on: measure each stage of the datapath",
    |attendance| if attendance.is_profiled() { "on" } else { "off" }.into(),
    |attendance, value| {
        let on = match value {
            "on" => true,
            "off" => false,
            other => return Err(format!("`{other}`: allowed are on and off")),
        };
        attendance.set_profile(on);
        Ok(())
    },
)];

/// Every parameter with the value that is in force, as [`set`] takes it.
pub fn in_force(attendance: &mut Attendance<'_>) -> Vec<(String, String)> {
    let mut all = attendance.gateway().settings();
    all.extend(OF_DRIVER.iter().map(|Setting(key, _, read, _)| ((*key).to_owned(), read(attendance))));
    all
}

/// Changes a parameter.
///
/// # Errors
/// What is wrong, and what is allowed; nothing has changed then.
pub fn set(attendance: &mut Attendance<'_>, key: &str, value: &str) -> Result<(), NotSet> {
    if let Some(Setting(.., write)) = OF_DRIVER.iter().find(|Setting(known, ..)| *known == key) {
        return write(attendance, value).map_err(NotSet::Value);
    }
    let now = attendance.now();
    attendance.gateway().set(now, key, value).map_err(|not_set| match not_set {
        NotSet::UnknownKey { key, mut known, links } => {
            known.extend(OF_DRIVER.iter().map(|Setting(key, ..)| (*key).to_owned()));
            NotSet::UnknownKey { key, known, links }
        }
        value @ NotSet::Value(_) => value,
    })
}

/// All keys with what they mean, for `farlink set --help`.
pub fn help() -> String {
    let of_driver = OF_DRIVER.iter().map(|Setting(key, means, ..)| ((*key).to_owned(), *means));
    let all: Vec<_> = farlink_gateway::settable().chain(of_driver).collect();
    let columns = all.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    all.iter().map(|(key, means)| format!("  {key:columns$}  {means}\n")).collect()
}
