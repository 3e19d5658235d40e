package main

var evidence = board{
	name:  "evidence",
	title: "memprov: evidence, loss, budget",
	tells: "How sure memprov's figures are, what it lost, and what it costs.",
	rows: []row{
		{"Fleet", []panel{
			{
				title: "Agents", unit: "none", kind: number,
				queries: []query{{`count(memprov_build_info{@h})`, ""}},
			},
			{
				title: "Exact share of resident memory", unit: "percentunit", kind: number,
				tells:   "The rest is inferred.",
				queries: []query{{`((sum(memprov_memory_resident_exact_bytes{@r}) or vector(0)) + (sum(memprov_memory_resident_bytes{@r, memprov_evidence="exact"}) or vector(0))) / (sum(memprov_memory_resident_bytes{@r}) > 0)`, ""}},
			},
			{
				title: "Books that are open", unit: "none", kind: number,
				queries: []query{{`count(book:memprov_memory_open:bytes{@r} != 0) or 0 * count(book:memprov_memory_open:bytes{@r})`, ""}},
			},
			{
				title: "CPUs that all agents take", unit: "none", kind: number,
				tells:   "Their own time, that of BPF programs in others, and what system calls take longer.",
				queries: []query{{`sum(memprov_budget_cpu_utilization_ratio{@h}) + (sum(memprov_budget_bpf_utilization_ratio{@h}) or vector(0)) + (sum(memprov_budget_syscall_utilization_ratio{@h}) or vector(0))`, ""}},
			},
			{
				title: "Settings refused in a day", unit: "none", kind: number,
				queries: []query{{`sum(increase(memprov_config_reloads_total{@h, memprov_outcome="refused"}[1d]))`, ""}},
			},
		}},
		{"Evidence", []panel{
			{
				title: "Bytes by which books are open", unit: "bytes", kind: lines,
				tells:   "Outside of the kernel's two readings. Anything but 0 is a defect (alert MemprovBooksOpen).",
				queries: []query{{`book:memprov_memory_open:bytes{@r}`, "{{job}}"}},
			},
			{
				title: "Skew and drift", unit: "bytes", kind: lines,
				tells: "What moved while it was read, and what the total grew by since.",
				queries: []query{
					{`topk(5, sum by (job) (abs(memprov_memory_skew_bytes{@r, memprov_book="process"})))`, "skew {{job}}"},
					{`topk(5, sum by (job) (abs(memprov_memory_drift_bytes{@r, memprov_book="process"})))`, "drift {{job}}"},
				},
			},
			{
				title: "Age of the oldest reading", unit: "s", kind: lines,
				queries: []query{{`topk(10, max by (job) (memprov_memory_book_age_seconds{@r, memprov_book="process"}))`, "{{job}}"}},
			},
		}},
		{"", []panel{
			{
				title: "Coverage", unit: "percentunit", kind: lines,
				tells:   "Share of resident memory whose origin was seen.",
				queries: []query{{`memprov_coverage_ratio{@h}`, "{{memprov_capability}} {{host_id}}"}},
			},
			{
				title: "Pages of which one is sampled", unit: "none", kind: lines,
				queries: []query{{`memprov_sampling_period{@h}`, "{{memprov_capability}} {{host_id}}"}},
			},
			{
				title: "What hosts lack", unit: "none", kind: rows,
				queries: []query{{`count by (memprov_capability, memprov_mechanism, memprov_state) (memprov_support{@h, memprov_state!="available"})`, "Hosts"}},
			},
		}},
		{"Loss", []panel{
			{
				title: "Records lost, by source", unit: "ops", kind: lines,
				queries: []query{{`sum by (memprov_source_name) (rate(memprov_source_lost_total{@h}[$__rate_interval]))`, "{{memprov_source_name}}"}},
			},
			{
				title: "Mappings that were otherwise than told", unit: "ops", kind: lines,
				queries: []query{{`sum by (memprov_difference) (rate(memprov_ledger_differences_total{@h}[$__rate_interval]))`, "{{memprov_difference}}"}},
			},
			{
				title: "Points by what became of them", unit: "ops", kind: lines,
				queries: []query{{`sum by (memprov_export_outcome) (rate(memprov_export_points_total{@h}[$__rate_interval]))`, "{{memprov_export_outcome}}"}},
			},
			{
				title: "Time from a request to its answer", unit: "s", kind: lines,
				queries: []query{{`sum by (host_id) (rate(memprov_export_duration_seconds_sum{@h}[$__rate_interval])) / (sum by (host_id) (rate(memprov_export_duration_seconds_count{@h}[$__rate_interval])) > 0)`, "{{host_id}}"}},
			},
		}},
		{"Budget", []panel{
			{
				title: "CPUs, by what takes them", unit: "none", kind: stacked,
				queries: []query{
					{`sum(memprov_budget_cpu_utilization_ratio{@h})`, "agents"},
					{`sum(memprov_budget_bpf_utilization_ratio{@h})`, "BPF programs"},
					{`sum(memprov_budget_syscall_utilization_ratio{@h})`, "system calls"},
				},
			},
			{
				title: "CPUs, by thread", unit: "none", kind: stacked,
				queries: []query{{`sum by (memprov_thread) (rate(memprov_budget_cpu_time_seconds_total{@h}[$__rate_interval]))`, "{{memprov_thread}}"}},
			},
			{
				title: "Resident memory of agents", unit: "bytes", kind: lines,
				queries: []query{{`topk(10, memprov_budget_resident_bytes{@h})`, "{{host_id}}"}},
			},
		}},
		{"", []panel{
			{
				title: "Readings that were not made", unit: "ops", kind: stacked,
				queries: []query{{`sum by (memprov_reason) (rate(memprov_budget_scan_skipped_total{@h}[$__rate_interval]))`, "{{memprov_reason}}"}},
			},
			{
				title: "Duration of scans", unit: "s", kind: lines,
				queries: []query{
					{`histogram_quantile(0.5, sum by (le) (rate(memprov_budget_scan_duration_seconds_bucket{@h}[$__rate_interval])))`, "median"},
					{`histogram_quantile(0.99, sum by (le) (rate(memprov_budget_scan_duration_seconds_bucket{@h}[$__rate_interval])))`, "99 %"},
				},
			},
			{
				title: "What a system call takes longer", unit: "s", kind: lines,
				queries: []query{{`memprov_budget_syscall_latency_seconds{@h}`, "{{host_id}}"}},
			},
			{
				title: "Bytes sent", unit: "Bps", kind: lines,
				queries: []query{{`sum by (host_id) (rate(memprov_export_size_bytes_total{@h}[$__rate_interval]))`, "{{host_id}}"}},
			},
		}},
	},
}
