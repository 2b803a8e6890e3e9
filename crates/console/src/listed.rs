//! A page of resources in a list of the console.

use shoal_store::{Cursor, ResourceFilter, ResourceRow, SortOrder};

use super::{Visit, frame::PageError, sources::Sources};

/// Rows of a page.
const PAGE: usize = 50;

/// Where in a list a page is, as its address says: after or before a row, or at the beginning.
#[derive(Debug, Clone, Default)]
pub(super) struct Position {
    after: Option<Cursor>,
    before: Option<Cursor>,
}

impl Position {
    pub(super) fn of(visit: &Visit) -> Self {
        let cursor = |name| visit.query.get(name).and_then(|text: &str| text.parse().ok());
        Self { after: cursor("after"), before: cursor("before") }
    }

    pub(super) fn is_first(&self) -> bool {
        self.after.is_none() && self.before.is_none()
    }
}

/// Rows of a page and the positions of its neighbours.
pub(super) struct Listed {
    pub(super) rows: Vec<ResourceRow>,
    pub(super) before: Option<Cursor>,
    pub(super) after: Option<Cursor>,
}

impl Listed {
    /// The page of `filter` at a position.
    pub(super) fn read(
        sources: &Sources,
        filter: ResourceFilter,
        Position { after, before }: Position,
    ) -> Result<Self, PageError> {
        let filter = ResourceFilter { limit: PAGE, ..filter };
        let sort = filter.sort;
        let edge = |row: Option<&ResourceRow>| row.map(|row| Cursor::after(row, sort));
        let Some(before) = before else {
            let page = sources.rows.list(&ResourceFilter { after: after.clone(), ..filter })?;
            let first = after.and(edge(page.rows.first()));
            return Ok(Self { rows: page.rows, before: first, after: page.next });
        };
        // The page before a row is the page after it in the opposite order.
        let opposite = if filter.order == SortOrder::Descending { SortOrder::Ascending } else { SortOrder::Descending };
        let mut page = sources.rows.list(&ResourceFilter { order: opposite, after: Some(before), ..filter })?;
        page.rows.reverse();
        let (first, last) = (edge(page.rows.first()), edge(page.rows.last()));
        Ok(Self { before: page.next.and(first), after: last, rows: page.rows })
    }
}
