//! Names of GPU models, as senders report them and as price lists write them.
//!
//! Only names of one and the same product are treated as equal. `H100` alone is sold as three
//! products at different prices, so it matches none of them: the operator names one, or maps all of
//! them with aliases.

/// Manufacturers and brands at the start of names.
const MANUFACTURERS: [&str; 5] = ["amd", "instinct", "nvidia", "radeon", "tesla"];

/// Alternative spellings of products, sorted, each with the name that the driver reports (NVML for
/// NVIDIA, `amd-smi` for AMD), both normalized.
const SPELLINGS: [(&str, &str); 67] = [
    ("a10 24gb", "a10"),
    ("a100 40gb pcie", "a100 pcie 40gb"),
    ("a100 40gb sxm", "a100 sxm4 40gb"),
    ("a100 40gb sxm4", "a100 sxm4 40gb"),
    ("a100 80gb sxm", "a100 sxm4 80gb"),
    ("a100 80gb sxm4", "a100 sxm4 80gb"),
    ("a100 pcie 80gb", "a100 80gb pcie"),
    ("a100 sxm 40gb", "a100 sxm4 40gb"),
    ("a100 sxm 80gb", "a100 sxm4 80gb"),
    ("a10g 24gb", "a10g"),
    ("a16 64gb", "a16"),
    ("a2 16gb", "a2"),
    ("a30 24gb", "a30"),
    ("a40 48gb", "a40"),
    ("a800 80gb sxm", "a800 sxm4 80gb"),
    ("a800 80gb sxm4", "a800 sxm4 80gb"),
    ("a800 pcie 80gb", "a800 80gb pcie"),
    ("a800 sxm 80gb", "a800 sxm4 80gb"),
    ("b200 sxm", "b200"),
    ("b200 sxm6", "b200"),
    ("b300", "b300 sxm6 ac"),
    ("b300 sxm", "b300 sxm6 ac"),
    ("b300 sxm6", "b300 sxm6 ac"),
    ("gb200 nvl72", "gb200"),
    ("gb300 nvl72", "gb300"),
    ("h100 80gb pcie", "h100 pcie"),
    ("h100 80gb sxm", "h100 80gb hbm3"),
    ("h100 80gb sxm5", "h100 80gb hbm3"),
    ("h100 94gb nvl", "h100 nvl"),
    ("h100 nvl 94gb", "h100 nvl"),
    ("h100 pcie 80gb", "h100 pcie"),
    ("h100 sxm", "h100 80gb hbm3"),
    ("h100 sxm 80gb", "h100 80gb hbm3"),
    ("h100 sxm5", "h100 80gb hbm3"),
    ("h100 sxm5 80gb", "h100 80gb hbm3"),
    ("h200 141gb nvl", "h200 nvl"),
    ("h200 141gb sxm", "h200"),
    ("h200 nvl 141gb", "h200 nvl"),
    ("h200 sxm", "h200"),
    ("h200 sxm 141gb", "h200"),
    ("h200 sxm5", "h200"),
    ("h200 sxm5 141gb", "h200"),
    ("h800 sxm", "h800"),
    ("h800 sxm5", "h800"),
    ("hgx b200", "b200"),
    ("hgx b300", "b300 sxm6 ac"),
    ("hgx h100", "h100 80gb hbm3"),
    ("hgx h200", "h200"),
    ("l4 24gb", "l4"),
    ("l40 48gb", "l40"),
    ("l40s 48gb", "l40s"),
    ("mi210 64gb", "mi210"),
    ("mi300x 192gb", "mi300x"),
    ("mi300x oam", "mi300x"),
    ("mi325x 256gb", "mi325x"),
    ("mi325x oam", "mi325x"),
    ("mi350x 288gb", "mi350x"),
    ("mi350x oam", "mi350x"),
    ("mi355x 288gb", "mi355x"),
    ("mi355x oam", "mi355x"),
    ("t4 16gb", "t4"),
    ("v100 16gb pcie", "v100 pcie 16gb"),
    ("v100 16gb sxm2", "v100 sxm2 16gb"),
    ("v100 32gb pcie", "v100 pcie 32gb"),
    ("v100 32gb sxm2", "v100 sxm2 32gb"),
    ("v100s", "v100s pcie 32gb"),
    ("v100s 32gb", "v100s pcie 32gb"),
];

/// Names that several products share, each with these products as reported.
const FAMILIES: [(&str, &[&str]); 16] = [
    (
        "a100",
        &[
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA A100-SXM4-40GB",
            "NVIDIA A100 80GB PCIe",
            "NVIDIA A100-PCIE-40GB",
        ],
    ),
    (
        "a100 40gb",
        &["NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"],
    ),
    (
        "a100 80gb",
        &["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"],
    ),
    (
        "a100 pcie",
        &["NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB"],
    ),
    (
        "a100 sxm",
        &["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"],
    ),
    (
        "a100 sxm4",
        &["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"],
    ),
    ("a800", &["NVIDIA A800-SXM4-80GB", "NVIDIA A800 80GB PCIe"]),
    ("gh200", &["NVIDIA GH200 480GB", "NVIDIA GH200 144G HBM3e"]),
    (
        "h100",
        &[
            "NVIDIA H100 80GB HBM3",
            "NVIDIA H100 PCIe",
            "NVIDIA H100 NVL",
        ],
    ),
    ("h100 80gb", &["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"]),
    ("h200 141gb", &["NVIDIA H200", "NVIDIA H200 NVL"]),
    (
        "v100",
        &[
            "Tesla V100-SXM2-32GB",
            "Tesla V100-SXM2-16GB",
            "Tesla V100-PCIE-32GB",
            "Tesla V100-PCIE-16GB",
        ],
    ),
    (
        "v100 16gb",
        &["Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB"],
    ),
    (
        "v100 32gb",
        &["Tesla V100-SXM2-32GB", "Tesla V100-PCIE-32GB"],
    ),
    (
        "v100 pcie",
        &["Tesla V100-PCIE-32GB", "Tesla V100-PCIE-16GB"],
    ),
    (
        "v100 sxm2",
        &["Tesla V100-SXM2-32GB", "Tesla V100-SXM2-16GB"],
    ),
];

/// Normalizes a name: lower case, words of letters and digits with single spaces, without the
/// manufacturer, and the reported spelling of a product.
pub(super) fn normalize(name: &str) -> String {
    let lower = name.to_lowercase();
    let mut words: Vec<&str> = lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let manufacturers = words.iter().take_while(|word| MANUFACTURERS.contains(word));
    let manufacturers = manufacturers.count().min(words.len().saturating_sub(1));
    words.drain(..manufacturers);
    let spelled = words.join(" ");
    let known = SPELLINGS.binary_search_by(|(spelling, _)| (*spelling).cmp(spelled.as_str()));
    match known.ok().and_then(|at| SPELLINGS.get(at)) {
        Some((_, reported)) => (*reported).to_owned(),
        None => spelled,
    }
}

/// Products that share a normalized name; `None` when it names a single product.
pub(super) fn products(name: &str) -> Option<&'static [&'static str]> {
    let mut families = FAMILIES.iter();
    let (_, products) = families.find(|(family, _)| *family == name)?;
    Some(products)
}

#[cfg(test)]
mod tests {
    use super::{FAMILIES, SPELLINGS, normalize, products};

    #[test]
    fn names_of_one_product_are_equal() {
        for (reported, others) in [
            (
                "NVIDIA H100 80GB HBM3",
                ["H100 SXM", "nvidia h100-sxm5-80gb", "NVIDIA-H100-80GB-HBM3"],
            ),
            (
                "NVIDIA H100 PCIe",
                ["H100 PCIe", "h100-80gb-pcie", "NVIDIA H100 PCIE"],
            ),
            ("NVIDIA H200", ["H200", "h200 sxm", "NVIDIA-H200"]),
            (
                "NVIDIA A100-SXM4-80GB",
                ["A100-SXM4-80GB", "A100 80GB SXM", "a100_80gb_sxm4"],
            ),
            (
                "NVIDIA A100 80GB PCIe",
                ["A100-PCIE-80GB", "A100 80GB PCIe", "nvidia a100 pcie 80gb"],
            ),
            (
                "Tesla V100-SXM2-32GB",
                [
                    "V100-SXM2-32GB",
                    "NVIDIA V100 32GB SXM2",
                    "tesla-v100-sxm2-32gb",
                ],
            ),
            ("NVIDIA L4", ["L4", "NVIDIA L4 24GB", "nvidia-l4"]),
            ("Tesla T4", ["T4", "NVIDIA T4", "nvidia-tesla-t4"]),
            (
                "AMD Instinct MI300X",
                ["MI300X", "AMD MI300X", "AMD Instinct MI300X OAM"],
            ),
        ] {
            for other in others {
                assert_eq!(normalize(other), normalize(reported), "{other}");
            }
        }
    }

    #[test]
    fn products_with_different_prices_are_distinct() {
        let mut names: Vec<String> = FAMILIES
            .iter()
            .flat_map(|(family, products)| products.iter().chain([family]))
            .copied()
            .chain([
                "NVIDIA H200 NVL",
                "NVIDIA H20",
                "NVIDIA GB200",
                "NVIDIA B200",
                "NVIDIA L40",
                "NVIDIA L40S",
            ])
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        let n_names = names.len();
        let mut all: Vec<String> = names.iter().map(|name| normalize(name)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), n_names, "{all:?}");
    }

    #[test]
    fn a_name_shared_by_several_products_lists_them() {
        let expected: &[&str] = &[
            "NVIDIA H100 80GB HBM3",
            "NVIDIA H100 PCIe",
            "NVIDIA H100 NVL",
        ];
        for name in ["H100", "NVIDIA H100", "nvidia-h100"] {
            assert_eq!(products(&normalize(name)), Some(expected), "{name}");
        }
        for (family, members) in FAMILIES {
            assert_eq!(normalize(family), family);
            for member in members {
                assert_eq!(products(&normalize(member)), None, "{member}");
            }
        }
    }

    #[test]
    fn the_table_is_sorted_and_maps_to_normalized_names() {
        assert!(SPELLINGS.is_sorted_by(|before, after| before.0 < after.0));
        for (spelling, reported) in SPELLINGS {
            assert_eq!(normalize(spelling), reported);
            assert_eq!(normalize(reported), reported, "{spelling}");
        }
    }

    #[test]
    fn a_manufacturer_alone_is_a_name() {
        assert_eq!(normalize("NVIDIA"), "nvidia");
        assert_eq!(normalize("NVIDIA Tesla"), "tesla");
        assert_eq!(normalize(" -- "), "");
    }
}
