//! FTP between curl and vsftpd: the data connection opened by the server (active) or by the client
//! (passive).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;

use super::bench::{Bench, has_other_users, has_user};
use crate::report::Measured;

/// Port of the control connection.
const PORT: u16 = 2121;
/// The user that vsftpd's anonymous guests are.
const USER: &str = "ftp";

pub(super) fn cannot_run() -> Option<String> {
    if !has_other_users() {
        return Some("vsftpd needs to become another user, and there is none in this namespace".into());
    }
    (!has_user(USER)).then(|| format!("there is no user {USER}"))
}

/// A file each way, by the extended commands of RFC 2428 and, over IPv4, by the old ones too.
pub(super) fn transfer(bench: &mut Bench<'_>, measured: &mut Measured, is_active: bool) -> Result<()> {
    serve(bench)?;
    let ways: &[&[&str]] = match (is_active, bench.server.is_ipv4()) {
        (true, true) => &[&["--ftp-port", "-"], &["--ftp-port", "-", "--disable-eprt"]],
        (true, false) => &[&["--ftp-port", "-"]],
        (false, true) => &[&[], &["--disable-epsv"]],
        (false, false) => &[&[]],
    };
    for (n, way) in (1_u64..).zip(ways) {
        let base = format!("ftp://{}:{PORT}", bench.host());
        let (near, up, down) = (format!("up-{n}"), format!("ftp/in/up-{n}"), format!("down-{n}"));
        let what = format!("FTP {} {}", if is_active { "active" } else { "passive" }, way.join(" "));
        let curl = |bench: &mut Bench<'_>, args: &[&str]| -> Result<()> {
            let usual =
                ["--silent", "--show-error", "--fail", "--globoff", "--noproxy", "*", "--max-time", "80"];
            let command = bench.client("curl", &[&usual[..], way, args].concat())?;
            bench.succeed(command).map(drop)
        };
        let sent = bench.file(&near, bench.size_bytes, n)?;
        curl(bench, &["--upload-file", &bench.text(&near), &format!("{base}/in/up-{n}")])?;
        // The server has the last bytes when it has said so, which curl has waited for.
        bench.arrived(measured, &format!("{what}, to the server"), &up, &sent);
        let sent = bench.file(&format!("ftp/{down}"), bench.size_bytes, n + 100)?;
        curl(bench, &["--output", &bench.text(&down), &format!("{base}/{down}")])?;
        bench.arrived(measured, &format!("{what}, from the server"), &down, &sent);
    }
    Ok(())
}

fn serve(bench: &mut Bench<'_>) -> Result<()> {
    for (name, mode) in [("ftp", 0o755), ("ftp/in", 0o777), ("empty", 0o755)] {
        fs::create_dir_all(bench.path(name))?;
        fs::set_permissions(bench.path(name), fs::Permissions::from_mode(mode))?;
    }
    let config = bench.config(
        "vsftpd.conf",
        &format!(
            "listen=NO\nlisten_ipv6=YES\nlisten_port={PORT}\nbackground=NO\nlocal_enable=NO\nanonymous_enable=YES\n\
             ftp_username={USER}\nno_anon_password=YES\nanon_root={}\nanon_upload_enable=YES\nwrite_enable=YES\n\
             anon_umask=022\nport_enable=YES\npasv_enable=YES\nconnect_from_port_20=NO\nsecure_chroot_dir={}\n\
             seccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\nxferlog_enable=NO\nsession_support=NO\n",
            bench.text("ftp"),
            bench.text("empty"),
        ),
    )?;
    bench.serve("vsftpd", &[&config], PORT)
}
