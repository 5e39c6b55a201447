//! Which priority class is next: the highest one that waits, within limits.

use crate::config::Class;

/// All classes, the highest first.
pub(crate) const ALL: [Class; 5] =
    [Class::Control, Class::Interactive, Class::Bulk, Class::Background, Class::Spare];

/// For each byte of a lower class a limited class may send this many: it gets three quarters of
/// what it shares with them.
const LIMITED_BYTES_PER_LOWER_BYTE: i64 = 3;
/// What a limited class may send ahead of the lower ones in one go.
const CREDIT_MAX_BYTES: i64 = 16 * 1024;

/// Bytes that [`Class::Control`] and [`Class::Interactive`] may still send before a lower class
/// gets its turn. Only counted while a lower one (other than background) waits.
#[derive(Clone, Debug)]
pub(crate) struct Credits {
    control: i64,
    interactive: i64,
}

/// One of something for each class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerClass<T> {
    control: T,
    interactive: T,
    bulk: T,
    background: T,
    spare: T,
}

impl<T> PerClass<T> {
    pub(crate) fn of(&self, class: Class) -> &T {
        match class {
            Class::Control => &self.control,
            Class::Interactive => &self.interactive,
            Class::Bulk => &self.bulk,
            Class::Background => &self.background,
            Class::Spare => &self.spare,
        }
    }

    pub(crate) fn of_mut(&mut self, class: Class) -> &mut T {
        match class {
            Class::Control => &mut self.control,
            Class::Interactive => &mut self.interactive,
            Class::Bulk => &mut self.bulk,
            Class::Background => &mut self.background,
            Class::Spare => &mut self.spare,
        }
    }
}

/// How many flows wait in each class.
pub(crate) type Waiting = PerClass<usize>;

impl Waiting {
    pub(crate) fn total(&self) -> usize {
        self.control + self.interactive + self.bulk + self.background + self.spare
    }

    /// Without those of [`Class::Control`], which take no share of the link.
    pub(crate) fn sharing(&self) -> usize {
        self.total() - self.control
    }

    pub(crate) fn any(&self) -> bool {
        self.total() > 0
    }
}

impl Default for Credits {
    fn default() -> Self {
        Self { control: CREDIT_MAX_BYTES, interactive: CREDIT_MAX_BYTES }
    }
}

impl Credits {
    /// The class to serve; `None`: nothing waits.
    pub(crate) fn choose(&self, waiting: &Waiting) -> Option<Class> {
        if waiting.control > 0 && (self.control > 0 || (waiting.interactive == 0 && waiting.bulk == 0)) {
            Some(Class::Control)
        } else if waiting.interactive > 0 && (self.interactive > 0 || waiting.bulk == 0) {
            Some(Class::Interactive)
        } else if waiting.bulk > 0 {
            Some(Class::Bulk)
        } else if waiting.background > 0 {
            Some(Class::Background)
        } else if waiting.spare > 0 {
            Some(Class::Spare)
        } else {
            None
        }
    }

    /// A class has sent `bytes`; `waiting` as it was then.
    pub(crate) fn spend(&mut self, class: Class, bytes: u64, waiting: &Waiting) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let earned = bytes.saturating_mul(LIMITED_BYTES_PER_LOWER_BYTE);
        let below = |credit: i64| credit.saturating_sub(bytes).max(-CREDIT_MAX_BYTES);
        let above = |credit: i64| credit.saturating_add(earned).min(CREDIT_MAX_BYTES);
        match class {
            Class::Control if waiting.interactive > 0 || waiting.bulk > 0 => {
                self.control = below(self.control)
            }
            Class::Interactive => {
                if waiting.bulk > 0 {
                    self.interactive = below(self.interactive);
                }
                self.control = above(self.control);
            }
            Class::Bulk => {
                self.interactive = above(self.interactive);
                self.control = above(self.control);
            }
            Class::Control | Class::Background | Class::Spare => {}
        }
    }
}
