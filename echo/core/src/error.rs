//! Error table: every error of the program has one of these codes, and only this file maps codes to
//! transport status numbers.

/// Meaning of an error for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The request is malformed; sending it again will not help.
    Invalid,
    /// The request has no credentials.
    Unauthenticated,
    /// The caller is not permitted to make this request.
    Forbidden,
    /// The requested object does not exist.
    NotFound,
    /// The path exists, but not for this method.
    WrongMethod,
    /// The request exceeds the size limit.
    TooLarge,
    /// The content type of the body is not supported.
    WrongType,
    /// The request is valid but refused by a rule.
    Refused,
    /// The caller exceeds its rate limit.
    TooMany,
    /// The service is at its limit; try again later.
    Busy,
    /// The deadline passed.
    Timeout,
    /// Internal error, such as a bug or a broken disk; the log has the details.
    Internal,
}

impl Code {
    /// All kinds, in the order of the table.
    pub const ALL: [Self; 12] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::WrongMethod,
        Self::TooLarge,
        Self::WrongType,
        Self::Refused,
        Self::TooMany,
        Self::Busy,
        Self::Timeout,
        Self::Internal,
    ];

    /// Name in error bodies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::WrongMethod => "wrong_method",
            Self::TooLarge => "too_large",
            Self::WrongType => "wrong_type",
            Self::Refused => "refused",
            Self::TooMany => "too_many",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Internal => "internal",
        }
    }

    /// The HTTP status.
    pub const fn http(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::WrongMethod => 405,
            Self::TooLarge => 413,
            Self::WrongType => 415,
            Self::Refused => 422,
            Self::TooMany => 429,
            Self::Busy => 503,
            Self::Timeout => 504,
            Self::Internal => 500,
        }
    }

    /// JSON-RPC error code; `None` for errors in the result of a tool. Errors before a tool call
    /// are reported by HTTP.
    pub const fn json_rpc(self) -> Option<i32> {
        match self {
            Self::Internal => Some(-32_603),
            _ => None,
        }
    }

    /// Returns the code for an HTTP status.
    pub fn from_http(status: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.http() == status)
    }

    /// The gRPC status code.
    pub const fn grpc(self) -> i32 {
        match self {
            Self::Invalid | Self::WrongType => 3,
            Self::WrongMethod => 12,
            Self::Unauthenticated => 16,
            Self::Forbidden => 7,
            Self::NotFound => 5,
            Self::Refused => 9,
            Self::TooLarge | Self::TooMany => 8,
            Self::Busy => 14,
            Self::Timeout => 4,
            Self::Internal => 13,
        }
    }
}

/// An error with a code.
pub trait Coded: std::error::Error {
    /// Code, which determines the status on every transport.
    fn code(&self) -> Code;
}

/// Returns the error with all its causes, outermost first, for one log line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn every_code_has_a_row_in_the_table() {
        let row = |code: &Code| {
            let (name, http, grpc) = (code.name(), code.http(), code.grpc());
            let mcp = code.json_rpc();
            let mcp = mcp.map_or_else(|| "result".to_owned(), |number| number.to_string());
            format!("{name} {http} {grpc} {mcp}")
        };
        let table = Code::ALL
            .iter()
            .map(row)
            .collect::<Vec<String>>()
            .join("\n");
        insta::assert_snapshot!(table, @r"
        invalid 400 3 result
        unauthenticated 401 16 result
        forbidden 403 7 result
        not_found 404 5 result
        wrong_method 405 12 result
        too_large 413 8 result
        wrong_type 415 3 result
        refused 422 9 result
        too_many 429 8 result
        busy 503 14 result
        timeout 504 4 result
        internal 500 13 -32603
        ");
    }
}
