//! Trees as the library writes them, as the columns that SageMaker's image saves: those of
//! `Booster.trees_to_dataframe`. Pure.

/// A column of nodes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Column {
    Integers(Vec<i64>),
    /// NaN where a node has none.
    Numbers(Vec<f64>),
    /// `nan` where a node has none.
    Texts(Vec<String>),
}

/// A node of a tree.
#[derive(Debug, Default)]
struct Node<'a> {
    tree: i64,
    number: i64,
    feature: &'a str,
    split: Option<f64>,
    category: Option<&'a str>,
    yes: Option<String>,
    no: Option<String>,
    missing: Option<String>,
    gain: Option<f64>,
    cover: Option<f64>,
}

/// The columns of these trees, of which the first has this number.
pub(super) fn columns(trees: &[String], first: usize) -> Vec<(&'static str, Column)> {
    let nodes = Vec::from_iter(
        (first as i64..).zip(trees).flat_map(|(tree, text)| text.lines().filter_map(move |line| node(tree, line))),
    );
    let integers = |of: fn(&Node<'_>) -> i64| Column::Integers(nodes.iter().map(of).collect());
    let numbers = |of: fn(&Node<'_>) -> Option<f64>| {
        Column::Numbers(nodes.iter().map(|node| of(node).unwrap_or(f64::NAN)).collect())
    };
    let texts = |of: &dyn Fn(&Node<'_>) -> Option<String>| {
        let found = Vec::from_iter(nodes.iter().map(of));
        match found.iter().all(Option::is_none) {
            true => Column::Numbers(vec![f64::NAN; found.len()]),
            false => Column::Texts(found.into_iter().map(|text| text.unwrap_or_else(|| "nan".to_owned())).collect()),
        }
    };
    vec![
        ("Tree", integers(|node| node.tree)),
        ("Node", integers(|node| node.number)),
        ("ID", texts(&|node| Some(format!("{}-{}", node.tree, node.number)))),
        ("Feature", texts(&|node| Some(node.feature.to_owned()))),
        ("Split", numbers(|node| node.split)),
        ("Yes", texts(&|node| node.yes.clone())),
        ("No", texts(&|node| node.no.clone())),
        ("Missing", texts(&|node| node.missing.clone())),
        ("Gain", numbers(|node| node.gain)),
        ("Cover", numbers(|node| node.cover)),
        ("Category", texts(&|node| node.category.map(str::to_owned))),
    ]
}

/// `0:[f2<1.5] yes=1,no=2,missing=2,gain=3.5,cover=9` or `1:leaf=0.5,cover=4`.
fn node(tree: i64, line: &str) -> Option<Node<'_>> {
    let (number, rest) = line.trim().split_once(':')?;
    let number = number.parse().ok()?;
    let (condition, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((condition, rest)) => (Some(condition), rest),
        None => (None, rest),
    };
    let value = |name: &str| rest.trim().split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let float = |name: &str| value(name)?.parse().ok();
    let cover = float("cover");
    let Some(condition) = condition else {
        return Some(Node { tree, number, feature: "Leaf", gain: float("leaf"), cover, ..Node::default() });
    };
    let at = condition.find(['<', ':']).unwrap_or(condition.len());
    let (feature, bound) = condition.split_at(at);
    let child = |name: &str| value(name).map(|node| format!("{tree}-{node}"));
    Some(Node {
        tree,
        number,
        feature,
        split: bound.strip_prefix('<').and_then(|bound| bound.parse().ok()),
        category: bound.strip_prefix(':').map(|bound| bound.trim_matches(['{', '}'])),
        yes: child("yes"),
        no: child("no"),
        missing: child("missing"),
        gain: float("gain"),
        cover,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_leaves_become_columns() {
        let text = "0:[f2<1.5] yes=1,no=2,missing=2,gain=3.5,cover=9\n\t1:leaf=-0.5,cover=4\n\t2:[f0:{1,3}] yes=3,no=4,\
                    missing=3,gain=1,cover=5\nno node\n";
        let trees = [text.to_owned(), "0:leaf=0.25,cover=2\n".to_owned()];
        let columns = columns(&trees, 6);
        let of = |name: &str| &columns.iter().find(|(known, _)| *known == name).unwrap().1;
        let texts = |values: &[&str]| Column::Texts(values.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!(*of("Tree"), Column::Integers(vec![6, 6, 6, 7]));
        assert_eq!(*of("Node"), Column::Integers(vec![0, 1, 2, 0]));
        assert_eq!(*of("ID"), texts(&["6-0", "6-1", "6-2", "7-0"]));
        assert_eq!(*of("Feature"), texts(&["f2", "Leaf", "f0", "Leaf"]));
        assert_eq!(*of("Yes"), texts(&["6-1", "nan", "6-3", "nan"]));
        assert_eq!(*of("Missing"), texts(&["6-2", "nan", "6-3", "nan"]));
        assert_eq!(*of("Gain"), Column::Numbers(vec![3.5, -0.5, 1.0, 0.25]));
        assert_eq!(*of("Cover"), Column::Numbers(vec![9.0, 4.0, 5.0, 2.0]));
        assert_eq!(*of("Category"), texts(&["nan", "nan", "1,3", "nan"]));
        let Column::Numbers(splits) = of("Split") else { panic!("numbers") };
        assert!(splits[0] == 1.5 && splits[1..].iter().all(|it| it.is_nan()), "{splits:?}");
        let Column::Numbers(none) = &super::columns(&trees[1..], 0)[5].1 else { panic!("numbers") };
        assert!(none[0].is_nan());
    }
}
