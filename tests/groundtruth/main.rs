//! Workloads that know the truth, against what memprov says of them.
//!
//! `the_oracle_agrees_with_the_kernel` needs no memprov; the other modules watch each case from its start, from after
//! its first phase, through a recorded trace, or by perf side-band as where BPF is refused.
#![forbid(unsafe_code)]

mod identity;
mod play;
mod swap;

macro_rules! cases {
    ($($sentence:ident => $case:literal,)*) => {
        const CASES: &[&str] = &[$($case),*];

        mod the_oracle_agrees_with_the_kernel {
            $(#[test] fn $sentence() { crate::play::oracle($case); })*
        }
        mod watched_from_the_start {
            $(#[test] fn $sentence() { crate::play::early($case); })*
        }
        mod watched_from_the_second_phase {
            $(#[test] fn $sentence() { crate::play::late($case); })*
        }
        mod watched_by_side_band {
            $(#[test] fn $sentence() { crate::play::sideband($case); })*
        }
        mod recorded_and_replayed {
            $(#[test] fn $sentence() { crate::play::replay($case); })*
        }
    };
}

cases! {
    whoever_came_last_of_ten_thousand_has_the_addresses => "free_and_reuse",
    an_owner_keeps_what_is_left_around_a_cut_and_a_cover => "cut_and_cover",
    a_failed_call_leaves_what_the_kernel_left => "failing_calls",
    thirty_thousand_pieces_are_one_owner => "thirty_thousand_pieces",
    what_stays_keeps_its_owner_while_others_come_and_go => "churn",
    what_grew_down_by_itself_is_its_mappers => "grown_down",
    a_move_onto_another_owner_takes_its_place => "remap_over_another",
    a_move_that_leaves_its_shell_is_two_pieces_of_one_owner => "remap_and_leave",
    an_object_mapped_twice_in_one_space_is_its_mappers => "remap_a_copy",
    growing_and_shrinking_keep_the_owner => "grow_and_shrink",
    the_break_belongs_to_whoever_moved_it => "break_up_and_down",
    a_large_block_belongs_to_its_caller => "large_blocks",
    small_blocks_belong_to_the_arena => "small_blocks",
    thread_stacks_are_stacks => "thread_stacks",
    named_memory_goes_by_its_name => "named_memory",
    two_processes_in_one_space_hold_its_bytes_once => "one_space_two_processes",
    exec_ends_the_old_programs_owners => "exec_replaces",
    vfork_and_exec_leave_the_parent_alone => "vfork_and_exec",
    a_zombie_leaders_space_is_still_read => "zombie_leader",
    the_oldest_of_three_generations_owns_what_is_common => "three_generations",
    the_heir_owns_what_its_parent_left => "the_parent_dies_first",
    a_child_that_unmaps_takes_nothing_from_its_parent => "the_child_unmaps",
    two_who_write_have_their_own => "both_write",
    what_workers_have_in_common_is_their_parents => "preforked",
    a_sysv_segment_is_owned_by_one_and_shared_by_two => "sysv_segment",
    a_segment_over_a_mapping_takes_as_much_as_it_is_long => "attach_over",
    a_memfd_is_there_once => "memfd",
    a_written_page_of_a_private_file_keeps_its_owner => "private_file",
    a_file_mapped_by_two_is_there_once => "shared_file",
    a_pool_mapped_by_eighteen_is_there_once => "pool",
    one_touch_of_a_huge_page_is_two_mebibytes => "huge_pages",
    a_collapse_makes_resident_what_nobody_touched => "collapse",
    zero_pages_are_not_resident => "zero_pages",
    pages_in_swap_are_not_resident => "paged_out",
    int_0x80_maps_and_unmaps_too => "compat_calls",
    int_0x80_moves_the_break_too => "compat_break",
}

/// Cases in which a lost record would make a wrong owner easy.
const FRAGILE: &[&str] = &[
    "free_and_reuse",
    "cut_and_cover",
    "churn",
    "remap_over_another",
    "grow_and_shrink",
    "exec_replaces",
    "three_generations",
    "the_parent_dies_first",
    "both_write",
];

#[test]
fn nothing_false_is_told_for_sure_when_records_are_lost() {
    for case in FRAGILE {
        for probability in ["0.01", "0.1", "0.9"] {
            play::under_loss(case, &[&format!("inject.lifecycle={probability}")]);
        }
        play::under_loss(case, &["inject.queue=0.5"]);
        play::under_loss(case, &["inject.stacks=0.5"]);
    }
    // Rings that are too small for ten thousand rounds.
    play::under_loss("free_and_reuse", &["hooks.mechanism=sideband", "rings.lifecycle=64KiB"]);
}

#[test]
fn every_case_of_the_workload_is_tested() {
    assert_eq!(play::listed(), CASES);
}
