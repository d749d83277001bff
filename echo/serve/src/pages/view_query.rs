//! State of a page that links, forms and reloads keep: whether reloading is paused, and which parts are open.

use std::collections::BTreeSet;

use maud::{Markup, html};
use serde::Deserialize;

/// Parameter that pauses reloading.
pub(super) const PAUSED: &str = "refresh=off";

/// Parameter with the names of the open parts.
const OPEN: &str = "open";

/// Part of a page that is shown on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Fold {
    /// Ranks without a notable lag.
    Ranks,
    /// Form of the search.
    Search,
    /// Form for another window.
    Window,
}

impl Fold {
    const ALL: [Self; 3] = [Self::Ranks, Self::Search, Self::Window];

    /// Returns its name in URLs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ranks => "ranks",
            Self::Search => "search",
            Self::Window => "window",
        }
    }

    const fn is_form(self) -> bool {
        matches!(self, Self::Search | Self::Window)
    }
}

/// State of a page, from its query. Unknown values are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Parameters")]
pub(super) struct ViewQuery {
    is_paused: bool,
    open: BTreeSet<Fold>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parameters {
    refresh: String,
    open: String,
}

impl From<Parameters> for ViewQuery {
    fn from(given: Parameters) -> Self {
        let is_given = |fold: &Fold| given.open.split(',').any(|name| name == fold.name());
        Self {
            is_paused: given.refresh == "off",
            open: Fold::ALL.into_iter().filter(is_given).collect(),
        }
    }
}

impl ViewQuery {
    /// Returns whether a part is open.
    pub(super) fn is_open(&self, fold: Fold) -> bool {
        self.open.contains(&fold)
    }

    /// Returns whether the reader may be typing, which a reload would discard.
    pub(super) fn has_form(&self) -> bool {
        self.open.iter().any(|fold| fold.is_form())
    }

    /// Returns the URL of another page. `query` is empty or begins with `&`.
    pub(super) fn link(&self, path: &str, query: &str) -> String {
        self.url(path, query, &BTreeSet::new())
    }

    /// Returns a URL of the same page with other parameters. Forms are closed.
    pub(super) fn stay(&self, path: &str, query: &str) -> String {
        self.url(path, query, &self.kept())
    }

    /// Renders the link that opens or closes a part of the same page.
    pub(super) fn toggle(&self, fold: Fold, (path, query): (&str, &str), text: &str) -> Markup {
        let mut open = self.open.clone();
        let is_open = !open.insert(fold);
        if is_open {
            open.remove(&fold);
        }
        let url = self.url(path, query, &open);
        let id = format!("open-{}", fold.name());
        html! {
            a.fold id=(id) href={ (url) "#" (id) } aria-expanded=(is_open) { (text) }
        }
    }

    /// Renders the fields of a form for the parameters that its page keeps.
    pub(super) fn hidden_fields(&self) -> Markup {
        let open = names(&self.kept());
        html! {
            @if !open.is_empty() { input type="hidden" name=(OPEN) value=(open); }
            @if self.is_paused { input type="hidden" name="refresh" value="off"; }
        }
    }

    fn kept(&self) -> BTreeSet<Fold> {
        let open = self.open.iter().copied();
        open.filter(|fold| !fold.is_form()).collect()
    }

    fn url(&self, path: &str, query: &str, open: &BTreeSet<Fold>) -> String {
        let open = (!open.is_empty()).then(|| format!("{OPEN}={}", names(open)));
        let paused = self.is_paused.then(|| PAUSED.to_owned());
        let given = Some(query.trim_start_matches('&').to_owned());
        let given = given.filter(|query| !query.is_empty());
        let parameters: Vec<String> = [given, open, paused].into_iter().flatten().collect();
        if parameters.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{}", parameters.join("&"))
        }
    }
}

fn names(open: &BTreeSet<Fold>) -> String {
    let names: Vec<&str> = open.iter().map(|fold| fold.name()).collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::{Fold, Parameters, ViewQuery};

    fn view(refresh: &str, open: &str) -> ViewQuery {
        ViewQuery::from(Parameters {
            refresh: refresh.to_owned(),
            open: open.to_owned(),
        })
    }

    #[test]
    fn links_keep_the_pause_and_those_of_the_same_page_the_open_parts_except_forms() {
        let view = view("off", "window,ranks,unknown");
        assert_eq!(view.link("/", ""), "/?refresh=off");
        assert_eq!(
            view.stay("/clusters/a", "&window=1h"),
            "/clusters/a?window=1h&open=ranks&refresh=off"
        );
        assert!(view.has_form() && view.is_open(Fold::Ranks));
        let closed = view.toggle(Fold::Ranks, ("/", ""), "Ranks").into_string();
        assert_eq!(
            closed,
            "<a class=\"fold\" id=\"open-ranks\" href=\"/?open=window&amp;refresh=off#open-ranks\" \
             aria-expanded=\"true\">Ranks</a>"
        );
    }

    #[test]
    fn without_a_query_urls_have_none() {
        let view = view("", "");
        assert_eq!(view, ViewQuery::default());
        assert_eq!(view.link("/", ""), "/");
        assert_eq!(view.hidden_fields().into_string(), "");
    }
}
