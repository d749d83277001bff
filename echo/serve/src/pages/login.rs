//! Login and logout: the token is stored in a cookie, and verified on every request like any other.

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
use crate::request_context::RequestContext;
use crate::response::failure;
use crate::session::{MAX_COOKIE_BYTES, is_from_own_page, removal_cookies, session_cookie};

/// Path to visit after login.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Next {
    next: String,
}

/// Fields of the login form.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SignIn {
    token: String,
    next: String,
}

/// Shows the form, or redirects if the caller is authenticated.
pub(super) async fn login(
    State(pages): State<Pages>,
    Query(Next { next }): Query<Next>,
    request_context: RequestContext,
) -> Response {
    if pages.middleware.auth.is_disabled() || request_context.caller.query.is_some() {
        return redirect(own_path(&next));
    }
    layout::page(
        "Sign in",
        &layout::Top::default(),
        &form(own_path(&next), None),
    )
}

/// Verifies the token as if it were in a header, and stores it in a cookie.
pub(super) async fn sign_in(State(pages): State<Pages>, request: Request) -> Response {
    let (is_own, extensions) = (
        is_from_own_page(request.headers(), request.uri()),
        request.extensions().clone(),
    );
    if !is_own {
        return foreign_page_error();
    }
    let form = Form::<SignIn>::from_request(request, &()).await;
    let Ok(Form(SignIn { token, next })) = form else {
        let message = "send a form with the field token";
        return failure(Code::Invalid, error_body(Code::Invalid, message));
    };
    let next = own_path(&next);
    if pages.middleware.auth.is_disabled() {
        return redirect(next);
    }
    match sign_in_cookie(&pages, token.trim(), &extensions) {
        Ok(cookie) => with_cookies(redirect(next), [Some(cookie)]),
        Err((code, message)) => {
            let status = StatusCode::from_u16(code.http());
            let page = layout::page(
                "Sign in",
                &layout::Top::default(),
                &form_with_error(next, &message),
            );
            (status.unwrap_or(StatusCode::UNAUTHORIZED), page).into_response()
        }
    }
}

/// Removes the cookie.
pub(super) async fn logout(request: Request) -> Response {
    if is_from_own_page(request.headers(), request.uri()) {
        with_cookies(redirect("/login"), removal_cookies())
    } else {
        foreign_page_error()
    }
}

fn sign_in_cookie(
    pages: &Pages,
    token: &str,
    extensions: &Extensions,
) -> Result<HeaderValue, (Code, String)> {
    let known = pages.middleware.auth.authorize(token, extensions);
    known.map_err(|(code, message)| (code, message.to_owned()))?;
    let too_long = || {
        let message =
            format!("the token is too long: browsers accept {MAX_COOKIE_BYTES} bytes per cookie");
        (Code::Invalid, message)
    };
    session_cookie(token, pages.middleware.origins.uses_tls()).ok_or_else(too_long)
}

fn foreign_page_error() -> Response {
    let message = "sign in or out only from Echo's own pages";
    failure(Code::Forbidden, error_body(Code::Forbidden, message))
}

fn redirect(path: &str) -> Response {
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

/// Returns the path if it is on this server, else `/`.
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

fn form_with_error(next: &str, error: &str) -> Markup {
    form(next, Some(error))
}

fn form(next: &str, error: Option<&str>) -> Markup {
    html! {
        div.narrow {
            h1 { "Sign in" }
            p { "Echo shows what your bearer token allows. The browser keeps it until it is closed or you sign out." }
            @if let Some(error) = error {
                p.error id="error" role="alert" { b { "Not signed in: " } (error) }
            }
            form.stacked method="post" action="/login" {
                label for="token" { "Bearer token" }
                input id="token" name="token" type="password" required autocomplete="current-password"
                    spellcheck="false" autocapitalize="off" autofocus
                    aria-invalid=[error.map(|_| "true")] aria-describedby=[error.map(|_| "error")];
                input type="hidden" name="next" value=(next);
                button type="submit" { "Sign in" }
            }
            p.quiet {
                "Followed a link from another site? Browsers omit the cookie then: "
                a href=(next) { "continue" } " if you are signed in."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::own_path;

    #[test]
    fn login_redirects_only_to_own_paths() {
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
