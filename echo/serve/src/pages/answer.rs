//! Answers of tools for the sections of a page, which are shown as far as they are there in time.

use maud::{Markup, html};

/// Tenths of the deadline of a query after which a page goes on without its incidents.
pub(super) const INCIDENTS_BY: u32 = 5;

/// Tenths of the deadline after which it goes on without anything else that is not there yet.
pub(super) const ALL_BY: u32 = 9;

/// Answer of a tool.
#[derive(Debug, Clone)]
pub(super) enum Answer<T> {
    /// It is there.
    Known(T),
    /// The visitor may not query it.
    Hidden,
    /// It was not available in time.
    Late,
}

impl<T> Answer<T> {
    /// Returns the answer if it is there.
    pub(super) const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(answer) => Some(answer),
            Self::Hidden | Self::Late => None,
        }
    }

    /// Returns whether it was not available in time.
    pub(super) const fn is_late(&self) -> bool {
        matches!(self, Self::Late)
    }

    /// Changes an answer that is there.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Known(answer) => Answer::Known(change(answer)),
            Self::Hidden => Answer::Hidden,
            Self::Late => Answer::Late,
        }
    }
}

/// Renders what stands for a section, or a part of one, that was not available in time.
pub(super) fn late() -> Markup {
    html! { p.caveat { "Not available in time; load the page again." } }
}
