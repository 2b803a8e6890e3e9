//! Sparse rows: `label[:weight] [qid:id] index:value ...`. Indices are the feature numbers as they
//! stand, as in XGBoost.

use super::{BadField, Batch, Features, number, quoted};

/// Adds the row of one line, without its end, to `batch`; returns one more than its greatest index
/// (0 without entries). A comment starts with `#`. The batch is left with half a row on an error.
pub(super) fn parse(line: &[u8], batch: &mut Batch) -> Result<usize, BadField> {
    let Features::Sparse { offsets, indices, values } = &mut batch.features else {
        unreachable!("libsvm rows are sparse")
    };
    let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mut tokens = line.split(u8::is_ascii_whitespace).filter(|token| !token.is_empty()).enumerate();
    let Some((_, head)) = tokens.next() else { return Ok(0) };

    let (label, weight) = match split(head) {
        Some((label, weight)) => (label, Some(weight)),
        None => (head, None),
    };
    batch.labels.push(finite(label, 1, "label").map_err(|wrong| with_hint(wrong, head))?);
    if let Some(weight) = weight {
        let value = finite(weight, 1, "weight")?;
        if value < 0.0 {
            return Err(BadField::new(1, format!("the weight {} is negative", quoted(weight))));
        }
        // Rows before the first weighted one weigh 1.
        batch.weights.resize(batch.labels.len() - 1, 1.0);
        batch.weights.push(value);
    } else if !batch.weights.is_empty() {
        batch.weights.push(1.0);
    }

    let mut columns = 0;
    let mut query = None;
    for (place, token) in tokens {
        let column = place + 1;
        let Some((key, value)) = split(token) else {
            return Err(BadField::new(column, format!("{} is not index:value", quoted(token))));
        };
        if key == b"qid" {
            query = Some(
                integer(value).ok_or_else(|| BadField::new(column, format!("{} is not a query id", quoted(value))))?,
            );
            continue;
        }
        let index = integer(key).filter(|index| *index < u32::MAX);
        let index = index.ok_or_else(|| BadField::new(column, format!("{} is not a feature index", quoted(key))))?;
        indices.push(index);
        values.push(feature(value, column)?);
        columns = columns.max(index as usize + 1);
    }
    offsets.push(values.len() as u64);
    match query {
        Some(query) if batch.groups.len() + 1 == batch.labels.len() => batch.groups.push(query),
        None if batch.groups.is_empty() => {}
        _ => return Err(BadField::new(2, "some rows of the channel have a query id (qid) and some have none")),
    }
    Ok(columns)
}

fn split(token: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = token.iter().position(|byte| *byte == b':')?;
    Some((&token[..colon], &token[colon + 1..]))
}

fn integer(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn feature(text: &[u8], column: usize) -> Result<f32, BadField> {
    let value =
        number::parse(text).ok_or_else(|| BadField::new(column, format!("{} is not a number", quoted(text))))?;
    if value.is_infinite() {
        return Err(BadField::new(
            column,
            format!("{} is infinite in single precision, which XGBoost does not take", quoted(text)),
        ));
    }
    Ok(value)
}

fn finite(text: &[u8], column: usize, what: &str) -> Result<f32, BadField> {
    number::parse(text)
        .filter(|value| value.is_finite())
        .ok_or_else(|| BadField::new(column, format!("the {what} {} is not a finite number", quoted(text))))
}

/// The format when none is given is libsvm, and most data is not.
fn with_hint(mut wrong: BadField, head: &[u8]) -> BadField {
    let hint = if head.iter().any(|byte| matches!(byte, b',' | b';')) {
        "; if the data is csv, give the channel the content type text/csv"
    } else {
        ""
    };
    wrong.reason.push_str(hint);
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str]) -> Result<(Batch, usize), BadField> {
        let mut batch = Batch::sparse();
        let mut columns = 0;
        for line in lines {
            columns = columns.max(parse(line.as_bytes(), &mut batch)?);
        }
        Ok((batch, columns))
    }

    #[test]
    fn rows_keep_their_entries() {
        let (batch, columns) = check(&["1 0:2 3:-4.5 # note", "0", "# only a comment", "-1  2:1"]).expect("rows");
        assert_eq!(columns, 4);
        assert_eq!(batch.labels, [1.0, 0.0, -1.0]);
        assert_eq!(
            batch.features,
            Features::Sparse { offsets: vec![0, 2, 2, 3], indices: vec![0, 3, 2], values: vec![2.0, -4.5, 1.0] }
        );
        assert!(batch.weights.is_empty() && batch.groups.is_empty());
    }

    #[test]
    fn weights_and_queries_are_read() {
        let (batch, _) = check(&["1 1:1", "0:0.5 1:1", "1 1:1"]).expect("rows");
        assert_eq!(batch.weights, [1.0, 0.5, 1.0]);
        let (batch, _) = check(&["1 qid:3 1:1", "0 qid:4 1:1"]).expect("rows");
        assert_eq!(batch.groups, [3, 4]);
    }

    #[test]
    fn bad_lines_are_told_by_column_and_text() {
        let cases: [(&[&str], usize, &str); 8] = [
            (&["x 1:2"], 1, "the label \"x\" is not a finite number"),
            (&["1:y 1:2"], 1, "the weight \"y\" is not a finite number"),
            (&["1:-2 1:2"], 1, "the weight \"-2\" is negative"),
            (&["1 1:2 3"], 3, "\"3\" is not index:value"),
            (&["1 -1:2"], 2, "\"-1\" is not a feature index"),
            (&["1 1:a"], 2, "\"a\" is not a number"),
            (
                &["1,2,3"],
                1,
                "the label \"1,2,3\" is not a finite number; if the data is csv, give the channel the content type \
                 text/csv",
            ),
            (&["1 qid:1 1:1", "1 1:1"], 2, "some rows of the channel have a query id (qid) and some have none"),
        ];
        for (lines, column, reason) in cases {
            assert_eq!(check(lines).map(|_| ()), Err(BadField::new(column, reason)), "{lines:?}");
        }
    }
}
