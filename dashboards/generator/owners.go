package main

const owner = "memprov_owner_kind, memprov_owner_name"

// Resources of processes are those with a total of the kernel. What several of their processes map is owned by the host's
// own resource, which has none: it is once there, and as joint in each of the totals.
const processes = `on (job, instance, host_id, container_id) memprov_memory_control_bytes{@r, memprov_book="process"}`

var owners = board{
	name:  "owners",
	title: "memprov: who owns the memory",
	tells: "Resident memory by owner. What owners have adds up to what the kernel says (the equation of the first row).",
	rows: []row{
		{"Owners + shared + unattributed + skew = the kernel's total", []panel{
			{
				title: "Kernel's total", unit: "bytes", kind: number,
				tells:   "RssAnon + RssFile + RssShmem of all processes that are watched.",
				queries: []query{{`sum(memprov_memory_control_bytes{@r, memprov_book="process", memprov_kind=~"anon|file|shmem"})`, ""}},
			},
			{
				title: "Owned", unit: "bytes", kind: number,
				tells:   "Each byte once, with its owner in a process.",
				queries: []query{{`sum(memprov_memory_resident_bytes{@r, memprov_owner_kind!="unattributed"} and ` + processes + `)`, ""}},
			},
			{
				title: "Shared", unit: "bytes", kind: number,
				tells:   "In the kernel's total, and owned by another process or by a shared object.",
				queries: []query{{`sum(memprov_memory_joint_bytes{@r, memprov_book="process", memprov_kind!~"swap|hugetlb"})`, ""}},
			},
			{
				title: "Unattributed", unit: "bytes", kind: number,
				tells:   "Counted by the kernel, and nobody is known to own it.",
				queries: []query{{`sum(memprov_memory_resident_bytes{@r, memprov_owner_kind="unattributed"} and ` + processes + `) or 0 * sum(memprov_memory_resident_bytes{@r})`, ""}},
			},
			{
				title: "Skew", unit: "bytes", kind: number,
				tells:   "What moved while it was read, or cannot be explained; 0 at rest.",
				queries: []query{{`sum(memprov_memory_skew_bytes{@r, memprov_book="process", memprov_kind!~"swap|hugetlb"})`, ""}},
			},
			{
				title: "Shared objects", unit: "bytes", kind: number,
				tells:   "What several processes map, each object once (service memprov). No part of the equation, whose total has it once in each process.",
				queries: []query{{`sum(memprov_memory_resident_bytes{@r} unless ` + processes + `) or 0 * sum(memprov_memory_resident_bytes{@r})`, ""}},
			},
			{
				title: "Swapped out", unit: "bytes", kind: number,
				tells:   "No part of the equation.",
				queries: []query{{`sum(memprov_memory_control_bytes{@r, memprov_book="process", memprov_kind="swap"})`, ""}},
			},
		}},
		{"Owners", []panel{
			{
				title: "Resident, ten largest owners", unit: "bytes", kind: stacked,
				queries: []query{{`topk(10, sum by (` + owner + `) (memprov_memory_resident_bytes{@r, memprov_owner_id!=""}))`, "{{memprov_owner_kind}} {{memprov_owner_name}}"}},
			},
			{
				title: "Resident by kind of owner", unit: "bytes", kind: stacked,
				queries: []query{{`sum by (memprov_owner_kind) (memprov_memory_resident_bytes{@r})`, "{{memprov_owner_kind}}"}},
			},
		}},
		{"", []panel{
			{
				title: "Owners now", unit: "bytes", kind: rows,
				tells: "Growth is that of the last hour; empty for owners that are younger.",
				queries: []query{
					{`sum by (` + owner + `) (memprov_memory_resident_bytes{@r, memprov_owner_id!=""})`, "Resident"},
					{`sum by (` + owner + `) (memprov_memory_reserved_bytes{@r, memprov_owner_id!=""})`, "Reserved"},
					{`sum by (` + owner + `) (memprov_memory_resident_bytes{@r, memprov_owner_id!=""}) - sum by (` + owner + `) (memprov_memory_resident_bytes{@r, memprov_owner_id!=""} offset 1h)`, "Growth"},
				},
			},
		}},
		{"Services", []panel{
			{
				title: "Resident, ten largest services", unit: "bytes", kind: lines,
				queries: []query{{`topk(10, sum by (job) (memprov_memory_resident_bytes{@r}))`, "{{job}}"}},
			},
			{
				title: "Page faults by kind of memory", unit: "ops", kind: stacked,
				tells:   "What kind of memory is made or brought in.",
				queries: []query{{`sum by (memprov_kind) (rate(memprov_memory_faults_by_kind_total{@r}[$__rate_interval]))`, "{{memprov_kind}}"}},
			},
			{
				title: "Faults that waited for the disk", unit: "ops", kind: lines,
				queries: []query{{`topk(10, sum by (job) (rate(memprov_memory_faults_total{@r, system_paging_fault_type="major"}[$__rate_interval])))`, "{{job}}"}},
			},
		}},
	},
}
