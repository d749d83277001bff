//! Median polish of a two-way table (Tukey, "Exploratory Data Analysis", 1977): splits each cell
//! into a common effect, a row effect, a column effect and a residual.

use crate::stats::median;

/// Maximum number of sweeps over rows and columns; a few are enough for the tables of a job.
const SWEEPS: usize = 10;

/// Decomposed table: `cell = overall + row + column + residual`.
#[derive(Debug, Clone, PartialEq)]
pub struct Polished {
    /// Effect common to all cells.
    pub overall: f64,
    /// Effect of each row.
    pub rows: Vec<f64>,
    /// Effect of each column.
    pub columns: Vec<f64>,
    /// Residual of each cell, row by row.
    pub residuals: Vec<Vec<f64>>,
}

/// Decomposes a table; `None` when it is empty or its rows differ in length.
pub fn median_polish(table: &[Vec<f64>]) -> Option<Polished> {
    let n_columns = table.first().map(Vec::len).filter(|n| *n > 0)?;
    if table.iter().any(|row| row.len() != n_columns) {
        return None;
    }
    let mut residuals = table.to_vec();
    let mut rows = vec![0.0; table.len()];
    let mut columns = vec![0.0; n_columns];
    let mut overall = 0.0;
    for _ in 0..SWEEPS {
        let mut moved = 0.0_f64;
        for (row, effect) in residuals.iter_mut().zip(&mut rows) {
            let middle = median(row)?;
            moved = moved.max(middle.abs());
            *effect += middle;
            for cell in row.iter_mut() {
                *cell -= middle;
            }
        }
        overall += recentre(&mut rows)?;
        for (index, effect) in columns.iter_mut().enumerate() {
            let column: Vec<f64> = residuals
                .iter()
                .filter_map(|row| row.get(index).copied())
                .collect();
            let middle = median(&column)?;
            moved = moved.max(middle.abs());
            *effect += middle;
            for cell in residuals.iter_mut().filter_map(|row| row.get_mut(index)) {
                *cell -= middle;
            }
        }
        overall += recentre(&mut columns)?;
        // Further sweeps would change nothing.
        if moved <= 0.0 {
            break;
        }
    }
    Some(Polished {
        overall,
        rows,
        columns,
        residuals,
    })
}

/// Subtracts the median from the effects and returns it.
fn recentre(effects: &mut [f64]) -> Option<f64> {
    let middle = median(effects)?;
    for effect in effects.iter_mut() {
        *effect -= middle;
    }
    Some(middle)
}

#[cfg(test)]
mod tests {
    use super::median_polish;
    use proptest::prelude::{prop_assert, proptest};

    #[test]
    fn a_high_row_is_a_row_effect_and_a_single_high_cell_a_residual() {
        let mut table = vec![vec![10.0; 4]; 4];
        table[3] = vec![16.0; 4];
        table[0][0] = 25.0;
        let polished = median_polish(&table).unwrap();
        assert!((polished.overall - 10.0).abs() < 1e-9);
        assert!((polished.rows[3] - 6.0).abs() < 1e-9);
        assert!((polished.residuals[0][0] - 15.0).abs() < 1e-9);
        assert!(polished.columns.iter().all(|effect| effect.abs() < 1e-9));
    }

    #[test]
    fn a_ragged_or_empty_table_is_refused() {
        assert_eq!(median_polish(&[]), None);
        assert_eq!(median_polish(&[vec![]]), None);
        assert_eq!(median_polish(&[vec![1.0], vec![1.0, 2.0]]), None);
    }

    proptest! {
        #[test]
        fn the_parts_add_up_to_the_cells(
            cells in proptest::collection::vec(-1e3..1e3_f64, 12),
        ) {
            let table: Vec<Vec<f64>> = cells.chunks(4).map(<[f64]>::to_vec).collect();
            let polished = median_polish(&table).unwrap();
            for (r, row) in table.iter().enumerate() {
                for (c, cell) in row.iter().enumerate() {
                    let sum = polished.overall + polished.rows[r] + polished.columns[c] + polished.residuals[r][c];
                    prop_assert!((sum - cell).abs() < 1e-6);
                }
            }
        }
    }
}
