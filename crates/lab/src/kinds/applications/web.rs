//! curl over HTTP/2 with TLS from nginx: several downloads at once in one connection.

use anyhow::Result;

use super::bench::Bench;
use crate::report::Measured;
use crate::sh;

/// Port of nginx.
const PORT: u16 = 8443;
/// The name in the certificate.
const NAME: &str = "server.lab.test";
/// Streams at the same time.
const STREAMS: u64 = 8;

pub(super) fn cannot_run() -> Option<String> {
    let curl = sh::run("curl", &["--version"]).unwrap_or_default();
    if !curl.split_whitespace().any(|word| word == "HTTP2") {
        return Some("curl was built without HTTP/2".into());
    }
    // nginx tells it on standard error.
    let nginx = sh::find("nginx").and_then(|path| std::process::Command::new(path).arg("-V").output().ok());
    let nginx = nginx.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
    (!nginx.contains("http_v2_module")).then(|| "nginx was built without HTTP/2".into())
}

pub(super) fn http2(bench: &mut Bench<'_>, measured: &mut Measured) -> Result<()> {
    serve(bench)?;
    let mut sent = Vec::new();
    for n in 1..=STREAMS {
        // One large file beside small ones.
        let bytes = if n == 1 { bench.size_bytes } else { bench.size_bytes / 40 * n };
        sent.push(bench.file(&format!("www/{n}"), bytes, n)?);
    }
    let mut args: Vec<String> = [
        "--silent --show-error --fail --noproxy * --http2 --parallel --parallel-max 10 --max-time 80",
        "--write-out %{http_version}:%{num_connects}\\n",
    ]
    .iter()
    .flat_map(|words| words.split(' ').map(String::from))
    .collect();
    args.extend(["--cacert".into(), bench.text("certificate")]);
    args.extend(["--resolve".into(), format!("{NAME}:{PORT}:{}", bench.host())]);
    args.extend(["--output".into(), bench.text("got-#1"), format!("https://{NAME}:{PORT}/[1-{STREAMS}]")]);
    let said = bench.succeed(bench.client("curl", &args.iter().map(String::as_str).collect::<Vec<_>>())?)?;
    let said = String::from_utf8_lossy(&said);
    let versions: Vec<_> = said.lines().filter_map(|line| line.split_once(':')).collect();
    measured.expect(versions.len() as u64 == STREAMS && versions.iter().all(|(v, _)| *v == "2"), || {
        format!("curl did not speak HTTP/2 in every stream: {said:?}")
    });
    let connections: u64 = versions.iter().filter_map(|(_, n)| n.parse::<u64>().ok()).sum();
    measured.metric("connections", connections as f64);
    for (n, sha) in (1..).zip(&sent) {
        bench.arrived(measured, &format!("stream {n}"), &format!("got-{n}"), sha);
    }
    Ok(())
}

/// nginx with a certificate of its own; one process as root, so that it needs no other user.
fn serve(bench: &mut Bench<'_>) -> Result<()> {
    let (key, certificate) = (bench.text("key"), bench.text("certificate"));
    let subject = format!("/CN={NAME}");
    let alternative = format!("subjectAltName=DNS:{NAME}");
    let kind =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    let rest = ["-keyout", &key, "-out", &certificate, "-subj", &subject, "-addext", &alternative];
    sh::run("openssl", &[&kind[..], &rest[..]].concat())?;
    let directory = bench.text("");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|t| format!("{t}_temp_path {directory}nginx-{t};"))
        .join(" ");
    let config = bench.config(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; user root; pid {directory}nginx.pid; error_log stderr;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; sendfile on; {temporary}\n\
             server {{ listen {PORT} ssl http2; listen [::]:{PORT} ssl http2; root {directory}www;\n\
             ssl_certificate {certificate}; ssl_certificate_key {key}; }} }}\n",
        ),
    )?;
    bench.serve("nginx", &["-e", "stderr", "-c", &config], PORT)
}
