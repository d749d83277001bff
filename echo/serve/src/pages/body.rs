//! What a page shows below its top bar.

use maud::Markup;

/// Content of a page.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) markup: Markup,
    pub(super) renewal: Renewal,
    /// Whether a part is missing that was not available in time.
    pub(super) is_partial: bool,
}

/// When a page shows something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// In some seconds: a part is being made.
    Soon,
    /// With new events.
    Usual,
    /// Never: it shows the past.
    Never,
}

impl Body {
    /// A page that has all of its parts.
    pub(super) const fn whole(markup: Markup) -> Self {
        Self {
            markup,
            renewal: Renewal::Usual,
            is_partial: false,
        }
    }
}
