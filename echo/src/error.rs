//! The one error table: every error of the program names one of these kinds, and only this file knows
//! which number a kind has on which transport.

/// What an error means to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The request cannot be understood; sending it again will not help.
    Invalid,
    /// Nobody said who is asking.
    Unauthenticated,
    /// The caller may not ask this.
    Forbidden,
    /// What was asked for does not exist.
    NotFound,
    /// The request is larger than the service takes.
    TooLarge,
    /// The request was understood and turned down by a rule.
    Refused,
    /// The caller asks too often.
    TooMany,
    /// The service is at its limit at the moment; try again.
    Busy,
    /// The deadline passed.
    Timeout,
    /// A defect or a broken disk; the log has the details.
    Internal,
}

impl Code {
    /// All kinds, in the order of the table.
    pub const ALL: [Self; 10] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::TooLarge,
        Self::Refused,
        Self::TooMany,
        Self::Busy,
        Self::Timeout,
        Self::Internal,
    ];

    /// The name that error bodies carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::TooLarge => "too_large",
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
            Self::TooLarge => 413,
            Self::Refused => 422,
            Self::TooMany => 429,
            Self::Busy => 503,
            Self::Timeout => 504,
            Self::Internal => 500,
        }
    }

    /// The gRPC status code.
    pub const fn grpc(self) -> i32 {
        match self {
            Self::Invalid => 3,
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

/// An error that knows its kind.
pub trait Coded: std::error::Error {
    /// The kind, which decides the status on every transport.
    fn code(&self) -> Code;
}

/// The error with all its causes, outermost first, for the one log line that an error gets.
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
    fn every_kind_has_its_place_in_the_table() {
        let row = |code: &Code| format!("{} {} {}", code.name(), code.http(), code.grpc());
        let table = Code::ALL
            .iter()
            .map(row)
            .collect::<Vec<String>>()
            .join("\n");
        insta::assert_snapshot!(table, @r"
        invalid 400 3
        unauthenticated 401 16
        forbidden 403 7
        not_found 404 5
        too_large 413 8
        refused 422 9
        too_many 429 8
        busy 503 14
        timeout 504 4
        internal 500 13
        ");
    }
}
