//! The tests of `openraft::testing::Suite`, each as a test of its own, so that each is counted; and the suite as a whole, in case it has more.

/// Runs one of them.
pub(crate) fn run<N: openraft::NodeId>(test: impl Future<Output = Result<(), openraft::StorageError<N>>>) {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    runtime.block_on(test).expect("the stores work");
}

/// Makes the tests for the stores that `$builder` builds.
macro_rules! suite {
    ($builder:expr, $suite:ty) => {
        suite! { @each $builder, $suite,
            last_membership_in_log_initial last_membership_in_log last_membership_in_log_multi_step
            get_membership_initial get_membership_from_log_and_empty_sm
            get_membership_from_empty_log_and_sm get_membership_from_log_le_sm_last_applied
            get_membership_from_log_gt_sm_last_applied_1 get_membership_from_log_gt_sm_last_applied_2
            get_initial_state_without_init get_initial_state_membership_from_log_and_sm
            get_initial_state_with_state get_initial_state_last_log_gt_sm
            get_initial_state_last_log_lt_sm get_initial_state_log_ids
            get_initial_state_re_apply_committed save_vote get_log_entries limited_get_log_entries
            try_get_log_entry initial_logs get_log_state get_log_id last_id_in_log last_applied_state
            purge_logs_upto_0 purge_logs_upto_5 purge_logs_upto_20 delete_logs_since_11
            delete_logs_since_0 append_to_log snapshot_meta apply_single apply_multiple
        }

        #[test]
        fn transfer_snapshot() {
            cases::run(<$suite>::transfer_snapshot(&$builder));
        }

        #[test]
        fn the_whole_suite() {
            <$suite>::test_all($builder).expect("the stores work");
        }
    };
    (@each $builder:expr, $suite:ty, $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                cases::run(async {
                    let (_guard, log, machine) = $builder.build().await?;
                    <$suite>::$name(log, machine).await
                });
            }
        )*
    };
}
