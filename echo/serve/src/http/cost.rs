//! The report of costs over HTTP: as CSV in the columns of FOCUS, and as JSON.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use echo_core::error::Code;
use echo_tools::cost_report::{Report, ReportRequest};
use echo_tools::get_cost::GetCost;
use echo_tools::rates::Rates;
use echo_tools::tool::Tool;
use echo_tools::{ToolError, error_body};
use serde_json::json;

use crate::http::HttpState;
use crate::http::tools::failed;
use crate::request_context::Asking;
use crate::response::{failure, success};

/// Name of the question in the log of questions.
const NAME: &str = "cost_report";

type Asked = Result<Query<ReportRequest>, QueryRejection>;

/// The report as CSV.
pub(super) async fn csv(State(state): State<HttpState>, asking: Asking, asked: Asked) -> Response {
    let written = |report: &Report, rates: &Rates, _: &ReportRequest| {
        let headers = [
            (
                CONTENT_TYPE,
                HeaderValue::from_static("text/csv; charset=utf-8; header=present"),
            ),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        Ok((headers, report.csv(rates)?).into_response())
    };
    answer((&state, &asking), asked, written).await
}

/// The report as JSON.
pub(super) async fn json(State(state): State<HttpState>, asking: Asking, asked: Asked) -> Response {
    let written = |report: &Report, rates: &Rates, asked: &ReportRequest| {
        Ok(success(report.json(rates, asked.rows.unwrap_or(true))))
    };
    answer((&state, &asking), asked, written).await
}

async fn answer(
    (state, asking): (&HttpState, &Asking),
    asked: Asked,
    written: impl FnOnce(&Report, &Rates, &ReportRequest) -> Result<Response, ToolError>
    + Send
    + 'static,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(rejection) => {
            return failure(
                Code::Invalid,
                error_body(Code::Invalid, &rejection.body_text()),
            );
        }
    };
    let input = json!({
        "cluster": asked.cluster, "day": asked.day, "from": asked.from, "to": asked.to, "open": asked.open,
    });
    let question = async {
        // Whoever may not ask what it costs may not have it as a report.
        state.registry.find(&asking.caller, GetCost::NAME)?;
        let context = state.contexts.of(&asking.caller);
        let told = async {
            let (report, rates) = (asked.report(&context).await?, Arc::clone(&context.rates));
            let written = move |report: &Report, rates: &Rates| written(report, rates, &asked);
            report.write_off_thread(rates, written).await?
        };
        context.run_limited(told).await
    };
    match asking.noted((NAME, &input), question).await {
        Ok(response) => response,
        Err(error) => failed(NAME, &error, asking),
    }
}
