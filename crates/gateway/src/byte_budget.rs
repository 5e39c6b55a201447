//! What a link has carried of what the operator pays for. What is used up stops nothing that a host
//! asks for: copies and tries of a higher rate end, as on a metered link, and it is said.
//!
//! The calendar is the driver's. It says when a period begins, and what earlier runs have carried
//! in it.

use farlink_engine::config::{ByteBudget, Copies, Link};
use farlink_engine::net::IfaceId;
use farlink_wire::{Duration, Instant};

use crate::gateway::Gateway;
use crate::network::Network;

/// So often the counters of the interface are asked what has come in.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A warning is due when so much of it is used, percent.
const LOW_PERCENT: u64 = 80;

/// How far a budget is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BudgetLevel {
    /// Less than four fifths.
    Fine,
    /// That, or more.
    Low,
    /// All of it, or more.
    UsedUp,
}

impl BudgetLevel {
    fn of(used_bytes: u64, budget: ByteBudget) -> Self {
        let of_budget = |percent: u64| u128::from(budget.bytes) * u128::from(percent) / 100;
        match u128::from(used_bytes) {
            used if used >= of_budget(100) => Self::UsedUp,
            used if used >= of_budget(LOW_PERCENT) => Self::Low,
            _ => Self::Fine,
        }
    }

    /// Its name in the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Low => "low",
            Self::UsedUp => "used up",
        }
    }
}

/// A link's budget, and what is used of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetUse<'a> {
    /// The link's name.
    pub link: &'a str,
    /// Its interface.
    pub interface: &'a str,
    /// What there is.
    pub budget: ByteBudget,
    /// Bytes in this period.
    pub used_bytes: u64,
    /// How far that is.
    pub level: BudgetLevel,
}

/// What has come in by a link.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    bytes: u64,
    /// Seen here since the counters were asked last.
    seen_bytes: u64,
    /// What the interface had counted by then.
    counted_bytes: Option<u64>,
    look_at: Instant,
}

impl Received {
    /// The interface has received so much; `None`: nobody counts, and what is seen here counts.
    fn look(&mut self, now: Instant, counted_bytes: Option<u64>) {
        self.look_at = now + LOOK_EVERY;
        let before = core::mem::replace(&mut self.counted_bytes, counted_bytes);
        let grown = before.zip(counted_bytes).and_then(|(before, bytes)| bytes.checked_sub(before));
        self.bytes += grown.unwrap_or(self.seen_bytes);
        self.seen_bytes = 0;
    }

    fn all(&self) -> u64 {
        self.bytes + self.seen_bytes
    }
}

/// What is counted of a link with a budget.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tab {
    budget: Option<ByteBudget>,
    /// What has been carried in this period by earlier runs.
    earlier_bytes: u64,
    /// What had been sent since the start when the period began.
    sent_before_bytes: u64,
    received: Received,
    /// Copies and tries have ended for it; `None`: they are to be as they should.
    ends: Option<bool>,
}

impl Tab {
    /// Of a link with this budget.
    pub fn new(budget: Option<ByteBudget>) -> Self {
        Self { budget, ends: Some(false), ..Self::default() }
    }

    /// The budget is another one from now on.
    pub fn renew(&mut self, budget: Option<ByteBudget>) {
        (self.budget, self.ends) = (budget, None);
    }

    /// There is something to count for.
    pub fn is_open(&self) -> bool {
        self.budget.is_some()
    }

    /// A packet has come in.
    pub fn note_received(&mut self, bytes: u32) {
        self.received.seen_bytes += u64::from(bytes);
    }

    /// It is time to ask the interface again.
    pub fn is_due(&self, now: Instant) -> bool {
        self.is_open() && now >= self.received.look_at
    }

    /// Asks the interface what has come in.
    pub fn look(&mut self, now: Instant, iface: IfaceId, net: &mut dyn Network) {
        self.received.look(now, net.received_by(iface).map(|count| count.bytes));
    }

    /// A period begins; so much has been sent since the start.
    pub fn begin_period(&mut self, sent_bytes: u64) {
        (self.earlier_bytes, self.sent_before_bytes) = (0, sent_bytes);
        (self.received.bytes, self.received.seen_bytes) = (0, 0);
    }

    /// What is used in this period, bytes; so much has been sent since the start.
    fn used_bytes(&self, sent_bytes: u64) -> u64 {
        let sent = sent_bytes.saturating_sub(self.sent_before_bytes);
        self.earlier_bytes.saturating_add(sent).saturating_add(self.received.all())
    }

    /// The same, with the budget and how far that is.
    pub fn read(&self, sent_bytes: u64) -> Option<(ByteBudget, u64, BudgetLevel)> {
        let used = self.used_bytes(sent_bytes);
        self.budget.map(|budget| (budget, used, BudgetLevel::of(used, budget)))
    }
}

impl Gateway {
    /// The budgets of links that have one, in their order.
    pub fn budgets(&self) -> impl Iterator<Item = BudgetUse<'_>> {
        self.declared().filter_map(|queue| {
            let (budget, used_bytes, level) = queue.budget()?;
            Some(BudgetUse { link: queue.name(), interface: queue.interface(), budget, used_bytes, level })
        })
    }

    /// A period begins for the budget of this link.
    pub fn begin_budget_period(&mut self, link: &str) {
        for queue in self.outlet.links_mut().iter_mut().filter(|queue| queue.name() == link) {
            let sent_bytes = queue.passed_bytes();
            queue.tab_mut().begin_period(sent_bytes);
        }
    }

    /// Earlier runs have carried so much over this link in the period that goes on.
    pub fn recall_budget_use(&mut self, link: &str, bytes: u64) {
        for queue in self.outlet.links_mut().iter_mut().filter(|queue| queue.name() == link) {
            let tab = queue.tab_mut();
            tab.earlier_bytes = tab.earlier_bytes.saturating_add(bytes);
        }
    }

    /// Where a budget is used up, nothing leaves that no host has sent; with the next period all is
    /// as it is configured.
    pub(crate) fn follow_budgets(&mut self) {
        for queue in self.outlet.links_mut() {
            let is_used_up = queue.budget().is_some_and(|(.., level)| level == BudgetLevel::UsedUp);
            if queue.tab_mut().ends.replace(is_used_up) == Some(is_used_up) {
                continue;
            }
            let mut interfaces = self.told.interfaces.iter();
            let told = interfaces.find(|told| told.id == queue.iface()).and_then(|told| told.link.as_ref());
            let is_metered = told.is_some_and(|link: &Link| link.is_metered);
            queue.set_tries(!is_metered && !is_used_up);
            self.engine.set_metered(queue.way(), is_metered || is_used_up);
            let copies = told.map_or(Copies::Auto, |link| link.copies);
            let copies = if is_used_up { Copies::Off } else { copies };
            self.engine.set_copies(queue.way(), copies);
        }
    }
}

#[cfg(test)]
mod tests {
    use farlink_engine::config::Period;

    use super::*;

    const BUDGET: ByteBudget = ByteBudget { bytes: 1_000, period: Period::Month };

    #[test]
    fn both_directions_and_earlier_runs_count_until_the_period_ends() {
        let mut tab = Tab::new(Some(BUDGET));
        tab.earlier_bytes = 500;
        tab.note_received(100);
        assert_eq!(tab.read(199), Some((BUDGET, 799, BudgetLevel::Fine)));
        assert_eq!(tab.read(200).map(|(.., level)| level), Some(BudgetLevel::Low));
        assert_eq!(tab.read(400).map(|(.., level)| level), Some(BudgetLevel::UsedUp));
        tab.begin_period(400);
        assert_eq!(tab.read(410), Some((BUDGET, 10, BudgetLevel::Fine)));
        assert_eq!(Tab::new(None).read(410), None);
    }

    #[test]
    fn the_counters_of_the_interface_count_where_there_are_some() {
        let mut received = Received { seen_bytes: 40, ..Received::default() };
        let now = Instant::ZERO;
        received.look(now, Some(7_000));
        assert_eq!(received.all(), 40, "what was before is not ours");
        received.seen_bytes = 50;
        received.look(now, Some(7_300));
        assert_eq!(received.all(), 340, "more came in than is diverted");
        received.seen_bytes = 50;
        received.look(now, Some(10));
        assert_eq!(received.all(), 390, "the interface is another one");
        received.seen_bytes = 60;
        received.look(now, None);
        assert_eq!(received.all(), 450);
    }
}
