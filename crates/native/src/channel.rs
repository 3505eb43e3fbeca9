//! Credit: how much of a channel may be on its way. The producer spends it, the client gives it back for
//! what has been taken from it. So each side holds at most one window of each channel, and a slow reader
//! slows its producer. A record costs its head as well, or empty ones would be free.

use crate::frame::HEAD_BYTES;

/// What a record of so many bytes costs.
pub const fn cost(record_bytes: usize) -> u32 {
    (record_bytes as u32).saturating_add(HEAD_BYTES as u32)
}

/// The producer's side: what may still be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Purse {
    window: u32,
    credit: u32,
}

impl Purse {
    /// A channel that has just been opened.
    pub const fn new(window: u32) -> Self {
        Self { window, credit: window }
    }

    /// Pays for a record; says whether there was enough.
    pub const fn spend(&mut self, cost: u32) -> bool {
        match self.credit.checked_sub(cost) {
            Some(left) => {
                self.credit = left;
                true
            }
            None => false,
        }
    }

    /// The client gives credit back; more than the window has is a violation.
    pub const fn earn(&mut self, credit: u32) -> bool {
        match self.credit.checked_add(credit) {
            Some(sum) if sum <= self.window => {
                self.credit = sum;
                true
            }
            _ => false,
        }
    }

    /// What may be sent now.
    pub const fn credit(&self) -> u32 {
        self.credit
    }
}

/// The client's side: what the producer may still send, and what it is to be given back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ledger {
    window: u32,
    /// What the producer has left, as far as is known here.
    credit: u32,
    /// What was taken and not given back yet.
    owed: u32,
}

impl Ledger {
    /// A channel that has just been opened.
    pub const fn new(window: u32) -> Self {
        Self { window, credit: window, owed: 0 }
    }

    /// A record came; says whether there was credit for it.
    pub const fn arrived(&mut self, cost: u32) -> bool {
        match self.credit.checked_sub(cost) {
            Some(left) => {
                self.credit = left;
                true
            }
            None => false,
        }
    }

    /// The application took a record: the credit to give back now, if it is worth a frame.
    pub const fn taken(&mut self, cost: u32) -> Option<u32> {
        let out = self.window.saturating_sub(self.credit);
        let owed = self.owed.saturating_add(cost);
        self.owed = if owed < out { owed } else { out };
        if self.owed < self.window / 2 {
            return None;
        }
        let given = self.owed;
        self.owed = 0;
        self.credit = self.credit.saturating_add(given);
        Some(given)
    }

    /// How many bytes have come and were not taken.
    pub const fn held(&self) -> u32 {
        self.window.saturating_sub(self.credit).saturating_sub(self.owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_spent_and_earned_back_and_never_exceeded() {
        // E4
        let mut purse = Purse::new(100);
        assert!(purse.spend(60));
        assert!(!purse.spend(41));
        assert!(purse.spend(40));
        assert_eq!(purse.credit(), 0);
        assert!(!purse.earn(101));
        assert!(purse.earn(100));
        assert!(!purse.earn(1));
        assert!(!purse.earn(u32::MAX));
    }

    #[test]
    fn credit_goes_back_in_halves_of_a_window() {
        // E4: one frame for many small records.
        let mut ledger = Ledger::new(100);
        assert!(ledger.arrived(70));
        assert_eq!(ledger.held(), 70);
        assert_eq!(ledger.taken(40), None);
        assert_eq!(ledger.held(), 30);
        assert_eq!(ledger.taken(30), Some(70));
        assert_eq!(ledger.held(), 0);
        assert!(ledger.arrived(100));
        assert!(!ledger.arrived(1));
    }

    #[test]
    fn nobody_gives_back_what_never_came() {
        let mut ledger = Ledger::new(100);
        assert!(ledger.arrived(10));
        assert_eq!(ledger.taken(u32::MAX), None);
        assert!(ledger.arrived(90));
        assert_eq!(ledger.taken(u32::MAX), Some(100));
    }

    #[test]
    fn an_empty_record_costs_something() {
        assert_eq!(cost(0), HEAD_BYTES as u32);
        assert_eq!(cost(usize::MAX), u32::MAX);
    }
}
