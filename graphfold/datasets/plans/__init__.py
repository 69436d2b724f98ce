"""Query plans: from what PostgreSQL, DuckDB and SQLite print to one tree of operators."""
