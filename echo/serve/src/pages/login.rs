//! Signing in and out: the token goes into a cookie, and with every further request through the same gate as any other.

use axum::Form;
use axum::extract::{FromRequest, Query, Request, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{Extensions, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use echo_core::error::Code;
use echo_tools::error_body;
use maud::{Markup, html};
use serde::Deserialize;

use super::{Pages, layout};
use crate::request_context::Asking;
use crate::response::failure;
use crate::session::{MAX_COOKIE_BYTES, forgetting, is_of_own_page, keeping};

/// Where to go once signed in.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Next {
    next: String,
}

/// What the form sends.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SignIn {
    token: String,
    next: String,
}

/// The form. Whoever is known already goes on.
pub(super) async fn login(
    State(pages): State<Pages>,
    Query(Next { next }): Query<Next>,
    asking: Asking,
) -> Response {
    if pages.terms.gate.asks_nobody() || asking.caller.ask.is_some() {
        return see(own_path(&next));
    }
    layout::page("Sign in", None, form(own_path(&next), None))
}

/// Looks at the token as if it had come in a header, and has the browser keep it.
pub(super) async fn sign_in(State(pages): State<Pages>, request: Request) -> Response {
    let (is_own, extensions) = (
        is_of_own_page(request.headers(), request.uri()),
        request.extensions().clone(),
    );
    if !is_own {
        return of_foreign_page();
    }
    let form = Form::<SignIn>::from_request(request, &()).await;
    let Ok(Form(SignIn { token, next })) = form else {
        let message = "send a form with the field token";
        return failure(Code::Invalid, error_body(Code::Invalid, message));
    };
    let next = own_path(&next);
    if pages.terms.gate.asks_nobody() {
        return see(next);
    }
    match kept(&pages, token.trim(), &extensions) {
        Ok(cookie) => with_cookies(see(next), [Some(cookie)]),
        Err((code, message)) => {
            let status = StatusCode::from_u16(code.http());
            let page = layout::page("Sign in", None, form_again(next, &message));
            (status.unwrap_or(StatusCode::UNAUTHORIZED), page).into_response()
        }
    }
}

/// Has the browser forget the token.
pub(super) async fn logout(request: Request) -> Response {
    if is_of_own_page(request.headers(), request.uri()) {
        with_cookies(see("/login"), forgetting())
    } else {
        of_foreign_page()
    }
}

fn kept(
    pages: &Pages,
    token: &str,
    extensions: &Extensions,
) -> Result<HeaderValue, (Code, String)> {
    let known = pages.terms.gate.let_in(token, extensions);
    known.map_err(|(code, message)| (code, message.to_owned()))?;
    let too_long = || {
        let message = format!("browsers keep {MAX_COOKIE_BYTES} bytes; this token is longer");
        (Code::Invalid, message)
    };
    keeping(token, pages.terms.callers.are_encrypted()).ok_or_else(too_long)
}

fn of_foreign_page() -> Response {
    let message = "only Echo's own page may sign in or out";
    failure(Code::Forbidden, error_body(Code::Forbidden, message))
}

fn see(path: &str) -> Response {
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}

fn with_cookies<const N: usize>(
    mut response: Response,
    cookies: [Option<HeaderValue>; N],
) -> Response {
    for cookie in cookies.into_iter().flatten() {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// A path of this server, and the front page for everything else.
fn own_path(next: &str) -> &str {
    let is_own = next.starts_with('/')
        && !next.starts_with("//")
        && next
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && next
            .parse::<Uri>()
            .is_ok_and(|uri| uri.authority().is_none());
    if is_own { next } else { "/" }
}

fn form_again(next: &str, wrong: &str) -> Markup {
    form(next, Some(wrong))
}

fn form(next: &str, wrong: Option<&str>) -> Markup {
    html! {
        div.narrow {
            h1 { "Sign in" }
            p { "Echo shows what your bearer token allows. The browser keeps it until it is closed or you sign out." }
            @if let Some(wrong) = wrong {
                p.wrong id="wrong" role="alert" { b { "Not signed in: " } (wrong) }
            }
            form.stacked method="post" action="/login" {
                label for="token" { "Bearer token" }
                input id="token" name="token" type="password" required autocomplete="current-password"
                    spellcheck="false" autocapitalize="off" autofocus
                    aria-invalid=[wrong.map(|_| "true")] aria-describedby=[wrong.map(|_| "wrong")];
                input type="hidden" name="next" value=(next);
                button type="submit" { "Sign in" }
            }
            p.quiet {
                "Came here by a link from elsewhere? Browsers leave out the cookie then: "
                a href=(next) { "go on" } " if you are signed in."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::own_path;

    #[test]
    fn nobody_is_sent_elsewhere_after_signing_in() {
        for own in ["/", "/clusters/lab?window=24h", "/clusters/a%2Fb"] {
            assert_eq!(own_path(own), own);
        }
        for foreign in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "/\t/evil.example",
            "javascript:alert(1)",
            "/a b",
        ] {
            assert_eq!(own_path(foreign), "/", "{foreign}");
        }
    }
}
