//! What a rate that was declared too low costs: the limit of a link that is no faster than its
//! gateways were told.

use farlink_channel::ChannelConfig;
use farlink_wire::time::Instant;

use super::carried::way;
use super::transfer::{limit_of, limit_seconds};
use crate::limit::{self, Path};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::{GatewayAt, Mode, Settings, Way, at_most};

/// Payload of two full segments with timestamps, and the acknowledgement of these.
const TWO_SEGMENTS_BYTES: f64 = 2.0 * 1_448.0;
const ACK_BITS: f64 = 52.0 * 8.0;

/// The time of a cell over the limit of what was declared, where that is less than the link has.
pub(crate) fn measure(scenario: &Scenario, cell: &Cell, measured: &mut Measured) {
    let Some(settings) = as_declared(&cell.settings) else { return };
    let slower = Cell { settings, ..cell.clone() };
    if let Some(limit_s) = limit_seconds(scenario, &slower) {
        let limit_s = acks_seconds(&slower).map_or(limit_s, |acks_s| limit_s.max(acks_s));
        measured.metric("ratio_to_declared", limit::ratio(measured.seconds, limit_s));
    }
}

/// How long acknowledgements of every second segment take on the way back, where gateways leave
/// them alone or make as many.
fn acks_seconds(cell: &Cell) -> Option<f64> {
    let settings = &cell.settings;
    let is_alone = settings.gateways == 1 && settings.gateway_at == GatewayAt::Client;
    let is_far = is_alone || settings.mode == Mode::Forward;
    let back_bps = settings.up_bps();
    if way(cell) != Way::Down || !is_far || back_bps == 0 {
        return None;
    }
    let bytes = cell.number("size_bytes", 1_000_000) * cell.number("flows", 1);
    Some(bytes as f64 / TWO_SEGMENTS_BYTES * ACK_BITS / back_bps as f64)
}

/// The same over links whose rates move: a perfect sender's time where they carry no more than what
/// was declared at any time. `began`, and the size of a packet in bytes.
pub(super) fn measure_moving(
    scenario: &Scenario,
    cell: &Cell,
    path: &Path<'_>,
    (began, packet_bytes): (Instant, u32),
    measured: &mut Measured,
) {
    let Some(settings) = as_declared(&cell.settings).filter(Settings::is_scheduled) else { return };
    let rates = [settings.rate_bps, settings.up_bps()];
    let [there_bps, back_bps] = if way(cell) == Way::Down { rates } else { [rates[1], rates[0]] };
    let capped = |links: &[ChannelConfig], most: u64| -> Vec<ChannelConfig> {
        links.iter().map(|link| at_most(link, most)).collect()
    };
    let (there, back) = (capped(path.there, there_bps), capped(path.back, back_bps));
    let job = limit_of(scenario, &Cell { settings, ..cell.clone() });
    let perfect_s = job.perfect_seconds(&Path { there: &there, back: &back }, began, packet_bytes);
    if let Some(perfect_s) = perfect_s {
        measured.metric("ratio_to_declared", limit::ratio(measured.seconds, perfect_s));
    }
}

/// The link as its gateways were told, where one was told too little.
fn as_declared(real: &Settings) -> Option<Settings> {
    let (down, up) = (real.rate_bps, real.up_bps());
    let runs = |at: GatewayAt| real.gateways > 1 || real.gateways == 1 && real.gateway_at == at;
    let told = |gateway: &str, at, out_bps, in_bps| {
        let told = real.told_bps(gateway, out_bps, in_bps).filter(|_| runs(at));
        told.map_or(out_bps, |(told, _)| if out_bps > 0 { told.min(out_bps) } else { told })
    };
    let declared = Settings {
        rate_bps: told("gw2", GatewayAt::Server, down, up),
        rate_up_bps: Some(told("gw1", GatewayAt::Client, up, down)),
        ..real.clone()
    };
    (declared.rate_bps < down || declared.up_bps() < up).then_some(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_runs_and_was_told_too_little_makes_the_limit() {
        let of = |pairs: &[&str]| {
            let mut settings = Settings::default();
            settings.set_all(["rate=8M", "rate_up=2M"]).unwrap();
            settings.set_all(pairs.iter().copied()).unwrap();
            as_declared(&settings).map(|s| (s.rate_bps, s.up_bps()))
        };
        assert_eq!(of(&["told_rates=gw1=50% gw2=50%"]), Some((4_000_000, 1_000_000)));
        assert_eq!(of(&["told_rates=gw1=50% gw2=50%", "gateways=1"]), Some((4_000_000, 2_000_000)));
        assert_eq!(of(&["told_rates=gw1=120% gw2=120%"]), None);
        assert_eq!(of(&["told_rates=gw2=swapped", "gateways=1"]), Some((2_000_000, 2_000_000)));
        assert_eq!(of(&["told_rates=gw2=50%", "gateways=1", "gateway_at=client"]), None);
        assert_eq!(of(&["gateways=0", "told_rates=gw2=50%"]), None);
    }

    #[test]
    fn a_link_that_moves_is_never_faster_than_declared() {
        let mut settings = Settings::default();
        settings.set_all(["rate=8M", "contacts=0s-9s@6M", "rate_changes=2s=3M 5s=9M"]).unwrap();
        let link = at_most(&settings.channel(Way::Down), 4_000_000);
        let changes: Vec<_> = link.rate_changes.iter().map(|c| c.rate_bps).collect();
        assert_eq!((link.rate_bps, changes), (Some(4_000_000), vec![3_000_000, 4_000_000]));
        assert_eq!(link.contact_plan.first().and_then(|c| c.rate_bps), Some(4_000_000));
    }
}
