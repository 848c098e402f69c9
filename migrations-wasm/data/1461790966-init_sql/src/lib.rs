//! Diego's four initial tables. There is no version before this one, so the migration is
//! irreversible.

use bbs_sdk::{Column, Manifest, Migration, Table, export_migration};

#[derive(Debug)]
pub struct InitSql;

impl Migration for InitSql {
    fn manifest() -> Manifest {
        Manifest::new(1_461_790_966, "init-sql")
            .summary("Creates domains, desired_lrps, actual_lrps and tasks")
            .create_table(domains())
            .create_table(desired_lrps())
            .create_table(actual_lrps())
            .create_table(tasks())
            .irreversible()
    }
}

fn domains() -> Table {
    Table::new("domains")
        .column(Column::varchar("domain", 255))
        .column(Column::big_integer("expire_time").nullable().default(0))
        .primary_key(["domain"])
        .index("domains_expire_time_idx", ["expire_time"])
}

fn desired_lrps() -> Table {
    Table::new("desired_lrps")
        .column(Column::varchar("process_guid", 255))
        .column(Column::varchar("domain", 255))
        .column(Column::varchar("log_guid", 255))
        .column(Column::medium_text("annotation").nullable())
        .column(Column::integer("instances"))
        .column(Column::integer("memory_mb"))
        .column(Column::integer("disk_mb"))
        .column(Column::varchar("rootfs", 255))
        .column(Column::medium_text("routes"))
        .column(Column::medium_text("volume_placement").enveloped())
        .column(Column::varchar("modification_tag_epoch", 255))
        .column(Column::integer("modification_tag_index").nullable())
        .column(Column::medium_text("run_info").enveloped())
        .primary_key(["process_guid"])
        .partition_key("process_guid")
        .index("desired_lrps_domain_idx", ["domain"])
}

fn actual_lrps() -> Table {
    Table::new("actual_lrps")
        .column(Column::varchar("process_guid", 255))
        .column(Column::integer("instance_index"))
        .column(Column::boolean("evacuating").default(false))
        .column(Column::varchar("domain", 255))
        .column(Column::varchar("state", 255))
        .column(Column::varchar("instance_guid", 255).default(""))
        .column(Column::varchar("cell_id", 255).default(""))
        .column(Column::varchar("placement_error", 255).default(""))
        .column(Column::big_integer("since").nullable().default(0))
        .column(Column::medium_text("net_info").enveloped())
        .column(Column::varchar("modification_tag_epoch", 255))
        .column(Column::integer("modification_tag_index").nullable())
        .column(Column::integer("crash_count").default(0))
        .column(Column::varchar("crash_reason", 255).default(""))
        .column(Column::big_integer("expire_time").nullable().default(0))
        .primary_key(["process_guid", "instance_index", "evacuating"])
        .partition_key("process_guid")
        .index("actual_lrps_domain_idx", ["domain"])
        .index("actual_lrps_cell_id_idx", ["cell_id"])
        .index("actual_lrps_since_idx", ["since"])
        .index("actual_lrps_state_idx", ["state"])
        .index("actual_lrps_expire_time_idx", ["expire_time"])
}

fn tasks() -> Table {
    Table::new("tasks")
        .column(Column::varchar("guid", 255))
        .column(Column::varchar("domain", 255))
        .column(Column::big_integer("updated_at").nullable().default(0))
        .column(Column::big_integer("created_at").nullable().default(0))
        .column(
            Column::big_integer("first_completed_at")
                .nullable()
                .default(0),
        )
        .column(Column::integer("state").nullable())
        .column(Column::varchar("cell_id", 255).default(""))
        .column(Column::medium_text("result").nullable())
        .column(Column::boolean("failed").nullable().default(false))
        .column(Column::varchar("failure_reason", 255).default(""))
        .column(Column::medium_text("task_definition").enveloped())
        .primary_key(["guid"])
        .partition_key("guid")
        .index("tasks_domain_idx", ["domain"])
        .index("tasks_state_idx", ["state"])
        .index("tasks_cell_id_idx", ["cell_id"])
        .index("tasks_updated_at_idx", ["updated_at"])
        .index("tasks_created_at_idx", ["created_at"])
        .index("tasks_first_completed_at_idx", ["first_completed_at"])
}

export_migration!(InitSql);
