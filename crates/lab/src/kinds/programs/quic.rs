//! A QUIC download (RFC 9000), with client and server of the library `quinn`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};

use super::downloads::{CHUNK_BYTES, Got, LOOK_EVERY, SEED};
use super::{Plan, Program, Stage};
use crate::build::Lab;
use crate::workload::content;

/// Port of the server.
const PORT: u16 = 4433;
/// The name in its certificate.
const NAME: &str = "server";
/// The request is short.
const REQUEST_BYTES_MAX: usize = 100;
/// So long the server may take to hear that all is over.
const PATIENCE: Duration = Duration::from_secs(5);

/// The congestion controller of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Controller {
    Cubic,
    Bbr,
}

/// What the server has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub(super) packets: u64,
    pub(super) lost: u64,
    pub(super) congestion_events: u64,
}

/// The sockets of both ends, in their namespaces.
pub(super) struct Ends {
    there: UdpSocket,
    here: UdpSocket,
    to: SocketAddr,
    controller: Controller,
}

impl Ends {
    /// What a plan with a QUIC download needs.
    pub(super) fn open(lab: &Lab, plan: &Plan, stage: &Stage) -> Result<Option<Self>> {
        let Program::Quic(controller) = plan.program else { return Ok(None) };
        let any = |port: u16| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let there = lab.ns(NAME).enter(|| Ok(UdpSocket::bind(any(PORT))?))?;
        let here = stage.client.enter(|| Ok(UdpSocket::bind(any(0))?))?;
        // A socket of both families takes an IPv4 address in IPv6.
        let to = match lab.address(NAME, plan.v6)? {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Ok(Some(Self { there, here, to: (to, PORT).into(), controller }))
    }

    /// Downloads until all is over, and says what the server has sent.
    pub(super) fn run(self, stage: &Stage) -> Option<Sent> {
        let mut sent = None;
        let outcome = self.download(stage);
        stage.check("QUIC", outcome.map(|by_server| sent = Some(by_server)));
        sent
    }

    /// On one thread both ends take turns.
    fn download(self, stage: &Stage) -> Result<Sent> {
        let (for_server, for_client) = configurations(self.controller)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let endpoint = |config, socket| {
                Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(TokioRuntime))
            };
            let server = tokio::spawn(serve(endpoint(Some(for_server), self.there)?));
            let mut client = endpoint(None, self.here)?;
            client.set_default_client_config(for_client);
            fetch(&client, self.to, stage).await?;
            // What is over is told to the server, which is a round trip away.
            tokio::time::timeout(PATIENCE, server).await.context("the server goes on")??
        })
    }
}

/// Of the server and of a client that trusts it. All but the controller is the library's usual.
fn configurations(controller: Controller) -> Result<(ServerConfig, ClientConfig)> {
    let own = rcgen::generate_simple_self_signed([NAME.to_string()])?;
    let certificate = own.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let mut transport = TransportConfig::default();
    match controller {
        Controller::Cubic => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
        Controller::Bbr => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
    };
    let mut server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    server.transport_config(Arc::new(transport));
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    Ok((server, ClientConfig::with_root_certificates(Arc::new(roots))?))
}

/// Answers one request with bytes without end, until the client closes.
async fn serve(endpoint: Endpoint) -> Result<Sent> {
    let connection = endpoint.accept().await.context("no connection comes")?.await?;
    let (mut answer, mut request) = connection.accept_bi().await?;
    request.read_to_end(REQUEST_BYTES_MAX).await?;
    let (mut chunk, mut at) = (vec![0; CHUNK_BYTES], 0);
    loop {
        content::fill(SEED, at, &mut chunk);
        if answer.write_all(&chunk).await.is_err() {
            break;
        }
        at += chunk.len() as u64;
    }
    let path = connection.stats().path;
    Ok(Sent {
        packets: path.sent_packets,
        lost: path.lost_packets,
        congestion_events: path.congestion_events,
    })
}

async fn fetch(client: &Endpoint, to: SocketAddr, stage: &Stage) -> Result<()> {
    let connection = client.connect(to, NAME)?.await.context("connect")?;
    let (mut request, mut answer) = connection.open_bi().await?;
    request.write_all(b"GET").await?;
    request.finish()?;
    let (mut chunk, mut got) = (vec![0; CHUNK_BYTES], Got::default());
    while !stage.is_over() {
        // A read that is given up has taken nothing.
        let Ok(read) = tokio::time::timeout(LOOK_EVERY, answer.read(&mut chunk)).await else { continue };
        let n = read?.context("it has ended")?;
        got.take(&chunk[..n], &stage.program_bytes)?;
    }
    connection.close(0_u32.into(), b"");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::netns::Ns;

    #[test]
    fn a_client_downloads_from_a_server_that_it_trusts() {
        for controller in [Controller::Cubic, Controller::Bbr] {
            let [there, here] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
            let to = there.local_addr().unwrap();
            let stage = Stage::new(Ns::current());
            let sent = std::thread::scope(|scope| {
                let ends = Ends { there, here, to, controller };
                let client = scope.spawn(|| ends.download(&stage));
                while stage.program_bytes.load(Ordering::Relaxed) < 1_000_000 && !client.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                stage.is_over.store(true, Ordering::Relaxed);
                client.join().unwrap()
            });
            assert!(sent.unwrap().packets > 500);
        }
    }
}
