//! The cost report over HTTP: CSV in FOCUS columns, and JSON.

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
use crate::request_context::RequestContext;
use crate::response::{failure, success};

/// Name of the query in the audit log.
const NAME: &str = "cost_report";

type CostParams = Result<Query<ReportRequest>, QueryRejection>;

/// Returns the report as CSV.
pub(super) async fn csv(
    State(state): State<HttpState>,
    request_context: RequestContext,
    params: CostParams,
) -> Response {
    let render = |report: &Report, rates: &Rates, _: &ReportRequest| {
        let headers = [
            (
                CONTENT_TYPE,
                HeaderValue::from_static("text/csv; charset=utf-8; header=present"),
            ),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        Ok((headers, report.csv(rates)?).into_response())
    };
    // CSV has nothing but rows.
    let with_rows = |Query(request)| {
        Query(ReportRequest {
            rows: None,
            ..request
        })
    };
    let params = params.map(with_rows);
    answer(&state, &request_context, params, render).await
}

/// Returns the report as JSON.
pub(super) async fn json(
    State(state): State<HttpState>,
    request_context: RequestContext,
    params: CostParams,
) -> Response {
    let render = |report: &Report, rates: &Rates, params: &ReportRequest| {
        Ok(success(report.json(rates, params.rows.unwrap_or(true))))
    };
    answer(&state, &request_context, params, render).await
}

async fn answer(
    state: &HttpState,
    request_context: &RequestContext,
    params: CostParams,
    render: impl FnOnce(&Report, &Rates, &ReportRequest) -> Result<Response, ToolError> + Send + 'static,
) -> Response {
    let params = match params {
        Ok(Query(params)) => params,
        Err(rejection) => {
            return failure(
                Code::Invalid,
                error_body(Code::Invalid, &rejection.body_text()),
            );
        }
    };
    let input = json!({
        "cluster": params.cluster, "day": params.day, "from": params.from, "to": params.to, "open": params.open,
    });
    let query = async {
        // The report requires the same permission as `get_cost`.
        state
            .registry
            .find(&request_context.caller, GetCost::NAME)?;
        let context = state.contexts.for_caller(&request_context.caller);
        let response = async {
            let (report, rates) = (params.report(&context).await?, Arc::clone(&context.rates));
            let render = move |report: &Report, rates: &Rates| render(report, rates, &params);
            report.write_off_thread(rates, render).await?
        };
        context.run_limited(response).await
    };
    match request_context.audited(NAME, &input, query).await {
        Ok(response) => response,
        Err(error) => failed(NAME, &error, request_context),
    }
}
