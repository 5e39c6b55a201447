//! What a rate that was declared too low costs: the limit of a link that is no faster than its
//! gateways were told.

use super::transfer::limit_seconds;
use crate::limit;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::{GatewayAt, Settings};

/// The time of a cell over the limit of what was declared, where that is less than the link has.
pub(crate) fn measure(scenario: &Scenario, cell: &Cell, measured: &mut Measured) {
    let Some(settings) = as_declared(&cell.settings) else { return };
    let slower = Cell { settings, ..cell.clone() };
    if let Some(limit_s) = limit_seconds(scenario, &slower) {
        measured.metric("ratio_to_declared", limit::ratio(measured.seconds, limit_s));
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
}
