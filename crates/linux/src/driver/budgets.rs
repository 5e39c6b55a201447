//! Budgets of bytes by the calendar: when a period begins, what earlier runs have carried in it,
//! and what the log is told.

use farlink_gateway::config::Period;
use farlink_gateway::{BudgetLevel, BudgetUse, Gateway};
use farlink_wire::{Duration, Instant};

use super::calendar::{began_s, now_s};

/// So often it is looked at the calendar.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What has been carried for a budget, and when that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// The link's name.
    pub link: String,
    /// Its interface.
    pub interface: String,
    /// In the period of that time, bytes.
    pub bytes: u64,
    /// Seconds since 1970.
    pub counted_at_s: u64,
}

/// What is used of all budgets now.
pub(super) fn used(gateway: &Gateway) -> Vec<Used> {
    let counted_at_s = now_s();
    let one = |of: BudgetUse<'_>| Used {
        link: of.link.to_owned(),
        interface: of.interface.to_owned(),
        bytes: of.used_bytes,
        counted_at_s,
    };
    gateway.budgets().map(one).collect()
}

#[derive(Debug)]
struct Told {
    link: String,
    period: Period,
    /// When the period began that is counted, seconds since 1970.
    began_s: u64,
    level: BudgetLevel,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    told: Vec<Told>,
    look_at: Instant,
}

impl Budgets {
    /// What an earlier run has carried in the period that goes on counts. A calendar that has been
    /// set back, as that of a machine without a clock is until it hears the time, ends no period.
    pub(super) fn recall(&mut self, gateway: &mut Gateway, used: &[Used], now_s: u64) {
        for once in used {
            let same = |of: &BudgetUse<'_>| of.link == once.link && of.interface == once.interface;
            let Some(period) = gateway.budgets().find(same).map(|of| of.budget.period) else { continue };
            let began = began_s(period, once.counted_at_s);
            if began < began_s(period, now_s) {
                continue;
            }
            gateway.recall_budget_use(&once.link, once.bytes);
            let told = Told { link: once.link.clone(), period, began_s: began, level: BudgetLevel::Fine };
            self.told.push(told);
        }
    }

    /// When it is looked next; `None`: there is no budget.
    pub(super) fn due(&self, gateway: &Gateway) -> Option<Instant> {
        gateway.budgets().next().map(|_| self.look_at)
    }

    /// Time may have come.
    pub(super) fn attend(&mut self, now: Instant, gateway: &mut Gateway) {
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.look(gateway, now_s());
        }
    }

    fn look(&mut self, gateway: &mut Gateway, now_s: u64) {
        let mut begins = Vec::new();
        for of in gateway.budgets() {
            let (period, began_s) = (of.budget.period, began_s(of.budget.period, now_s));
            let place = self.told.iter().position(|told| told.link == of.link);
            let place = place.unwrap_or_else(|| {
                let level = BudgetLevel::Fine;
                self.told.push(Told { link: of.link.to_owned(), period, began_s, level });
                self.told.len() - 1
            });
            let Some(told) = self.told.get_mut(place) else { continue };
            if core::mem::replace(&mut told.period, period) != period {
                told.began_s = began_s;
            }
            if began_s > told.began_s {
                told.began_s = began_s;
                told.level = BudgetLevel::Fine;
                begins.push(of.link.to_owned());
            } else if core::mem::replace(&mut told.level, of.level) < of.level {
                tell(&of);
            }
        }
        for link in begins {
            tracing::info!(link, "a new period of the budget of bytes begins");
            gateway.begin_budget_period(&link);
        }
    }
}

fn tell(of: &BudgetUse<'_>) {
    let (link, used_bytes, budget_bytes) = (of.link, of.used_bytes, of.budget.bytes);
    let period = of.budget.period.name();
    match of.level {
        BudgetLevel::Fine => {}
        BudgetLevel::Low => tracing::warn!(
            link,
            used_bytes,
            budget_bytes,
            period,
            "four fifths of the budget of bytes are used"
        ),
        BudgetLevel::UsedUp => tracing::warn!(
            link,
            used_bytes,
            budget_bytes,
            period,
            "the budget of bytes is used up: no copies are sent until the period ends, connections go on"
        ),
    }
}

#[cfg(test)]
mod tests {
    use farlink_gateway::IfaceId;
    use farlink_gateway::config::{ByteBudget, Config, Interface, Link};

    use super::*;

    /// A Wednesday.
    const NOW_S: u64 = 1_795_618_020;
    const DAY_S: u64 = 86_400;

    fn gateway(period: Period) -> Gateway {
        let byte_budget = Some(ByteBudget { bytes: 1_000, period });
        let link = Link { name: "geo".into(), byte_budget, ..Link::default() };
        let interface = Interface {
            id: IfaceId(1),
            name: "sat0".into(),
            domain: 0,
            addresses: Vec::new(),
            link: Some(link),
        };
        Gateway::new(Config { interfaces: vec![interface], ..Config::default() })
    }

    fn used(bytes: u64, counted_at_s: u64) -> [Used; 1] {
        [Used { link: "geo".into(), interface: "sat0".into(), bytes, counted_at_s }]
    }

    fn now_used(gateway: &Gateway) -> (u64, BudgetLevel) {
        gateway.budgets().next().map(|of| (of.used_bytes, of.level)).unwrap()
    }

    #[test]
    fn earlier_runs_count_until_the_period_ends() {
        let (mut gateway, mut budgets) = (gateway(Period::Week), Budgets::default());
        budgets.recall(&mut gateway, &used(850, NOW_S - DAY_S), NOW_S);
        assert_eq!(now_used(&gateway), (850, BudgetLevel::Low));
        budgets.look(&mut gateway, NOW_S + 4 * DAY_S);
        assert_eq!(now_used(&gateway), (850, BudgetLevel::Low), "it is Sunday");
        budgets.look(&mut gateway, NOW_S + 5 * DAY_S);
        assert_eq!(now_used(&gateway), (0, BudgetLevel::Fine), "a new week");
    }

    #[test]
    fn an_earlier_period_does_not_count() {
        let (mut gateway, mut budgets) = (gateway(Period::Day), Budgets::default());
        budgets.recall(&mut gateway, &used(850, NOW_S - DAY_S), NOW_S);
        assert_eq!(now_used(&gateway), (0, BudgetLevel::Fine));
    }

    #[test]
    fn a_calendar_that_has_been_set_back_ends_no_period() {
        let (mut gateway, mut budgets) = (gateway(Period::Month), Budgets::default());
        budgets.recall(&mut gateway, &used(1_000, NOW_S), 60);
        budgets.look(&mut gateway, 100);
        assert_eq!(now_used(&gateway), (1_000, BudgetLevel::UsedUp));
        // It hears the time.
        budgets.look(&mut gateway, NOW_S + 60);
        assert_eq!(now_used(&gateway), (1_000, BudgetLevel::UsedUp));
    }
}
