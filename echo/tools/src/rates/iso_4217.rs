//! ISO 4217 currencies in which prices can be given.
//!
//! Excluded from the list of the standard: precious metals, units of account, funds, and the codes
//! for tests and for no currency.

/// Codes, sorted.
const CODES: [&str; 155] = [
    "AED", "AFN", "ALL", "AMD", "AOA", "ARS", "AUD", "AWG", "AZN", "BAM", "BBD", "BDT", "BHD",
    "BIF", "BMD", "BND", "BOB", "BRL", "BSD", "BTN", "BWP", "BYN", "BZD", "CAD", "CDF", "CHF",
    "CLP", "CNY", "COP", "CRC", "CUP", "CVE", "CZK", "DJF", "DKK", "DOP", "DZD", "EGP", "ERN",
    "ETB", "EUR", "FJD", "FKP", "GBP", "GEL", "GHS", "GIP", "GMD", "GNF", "GTQ", "GYD", "HKD",
    "HNL", "HTG", "HUF", "IDR", "ILS", "INR", "IQD", "IRR", "ISK", "JMD", "JOD", "JPY", "KES",
    "KGS", "KHR", "KMF", "KPW", "KRW", "KWD", "KYD", "KZT", "LAK", "LBP", "LKR", "LRD", "LSL",
    "LYD", "MAD", "MDL", "MGA", "MKD", "MMK", "MNT", "MOP", "MRU", "MUR", "MVR", "MWK", "MXN",
    "MYR", "MZN", "NAD", "NGN", "NIO", "NOK", "NPR", "NZD", "OMR", "PAB", "PEN", "PGK", "PHP",
    "PKR", "PLN", "PYG", "QAR", "RON", "RSD", "RUB", "RWF", "SAR", "SBD", "SCR", "SDG", "SEK",
    "SGD", "SHP", "SLE", "SOS", "SRD", "SSP", "STN", "SVC", "SYP", "SZL", "THB", "TJS", "TMT",
    "TND", "TOP", "TRY", "TTD", "TWD", "TZS", "UAH", "UGX", "USD", "UYU", "UZS", "VED", "VES",
    "VND", "VUV", "WST", "XAF", "XCD", "XCG", "XOF", "XPF", "YER", "ZAR", "ZMW", "ZWG",
];

/// True for a known currency code.
pub(super) fn is_currency(code: &str) -> bool {
    CODES.binary_search(&code).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{CODES, is_currency};

    #[test]
    fn the_codes_are_sorted_and_well_formed() {
        assert!(CODES.is_sorted_by(|before, after| before < after));
        for code in CODES {
            let is_well_formed = code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase());
            assert!(is_well_formed, "{code}");
        }
    }

    #[test]
    fn currencies_in_circulation_are_known_and_others_are_not() {
        for code in [
            "USD", "EUR", "GBP", "JPY", "CNY", "INR", "XOF", "XCG", "ZWG",
        ] {
            assert!(is_currency(code), "{code}");
        }
        // A fund code, a typo, a currency replaced by the euro, gold, a unit of account, tests,
        // none.
        for code in ["USX", "UDS", "HRK", "XAU", "CLF", "XTS", "XXX", "usd", ""] {
            assert!(!is_currency(code), "{code}");
        }
    }
}
