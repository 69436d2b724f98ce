"""Plans as the three databases print them, shortened by hand."""

POSTGRESQL = [
    {
        "Plan": {
            "Node Type": "Hash Join",
            "Join Type": "Left",
            "Startup Cost": 10.0,
            "Total Cost": 99.0,
            "Plan Rows": 999,
            "Plan Width": 8,
            "Actual Rows": 77,
            "Actual Total Time": 1.5,
            "Hash Cond": "(a.id = b.a_id)",
            "Plans": [
                {
                    "Node Type": "Seq Scan",
                    "Relation Name": "a",
                    "Plan Rows": 100,
                    "Filter": "((k > 3) AND (k < 9))",
                },
                {
                    "Node Type": "Hash",
                    "Plan Rows": 9,
                    "Plans": [{"Node Type": "Seq Scan", "Relation Name": "b", "Plan Rows": 9}],
                },
            ],
        },
        "Planning Time": 0.2,
        "Execution Time": 1.75,
    }
]

DUCKDB_EXPLAIN = [
    {
        "name": "HASH_JOIN",
        "children": [
            {
                "name": "SEQ_SCAN ",
                "children": [],
                "extra_info": {"Table": "a", "Filters": "k>3", "Estimated Cardinality": "99"},
            },
            {"name": "SEQ_SCAN ", "children": [], "extra_info": {"Table": "b"}},
        ],
        "extra_info": {"Join Type": "INNER", "Estimated Cardinality": "~9"},
    }
]

DUCKDB_PROFILE = {
    "latency": 0.004,
    "children": [
        {
            "operator_type": "PROJECTION",
            "operator_timing": 0.001,
            "operator_cardinality": 5,
            "extra_info": {"Estimated Cardinality": "9"},
            "children": [
                {"operator_type": "TABLE_SCAN", "operator_name": "SEQ_SCAN ", "children": []}
            ],
        }
    ],
}

DUCKDB_NEWER_PROFILE = {
    "query": {"cpu_time": 0.5, "total_time": 0.25},
    "operator": [
        {
            "type": "RESULT_COLLECTOR",
            "children": [
                {
                    "type": "TOP_N",
                    "timing": 0.1,
                    "extra_info": {"Estimated Cardinality": "3"},
                    "children": [],
                }
            ],
        }
    ],
}

SQLITE = {
    "plan": [
        [4, 0, 0, "SCAN a USING COVERING INDEX a_k"],
        [9, 0, 0, "SEARCH b USING INDEX b_a_id (a_id=?)"],
        [12, 0, 0, "LIST SUBQUERY 1"],
        [15, 12, 0, "SEARCH c USING INTEGER PRIMARY KEY (rowid=?)"],
        [40, 0, 0, "USE TEMP B-TREE FOR ORDER BY"],
    ],
    "tables": {"a": {"rows": 99, "selectivity": {"k": 0.1}}, "b": {"rows": 999}},
    "indexes": {"b_a_id": 4},
    "cost": 1234,
}
