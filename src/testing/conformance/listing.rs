//! What makes of the names of clauses a list, and tests.

/// One list, from which both a constant and a macro are made. The `$` is passed in so that the inner macro can
/// have arguments of its own.
macro_rules! clauses {
    (
        $(#[$list_doc:meta])* $list:ident;
        $(#[$macro_doc:meta])* $tests:ident;
        $dollar:tt $($topic:ident: [$($clause:ident,)+])+
    ) => {
        $(#[$list_doc])*
        pub const $list: &[Clause] = &[$($(Clause {
            name: concat!(stringify!($topic), "::", stringify!($clause)),
            run: super::$topic::$clause,
        },)+)+];

        $(#[$macro_doc])*
        #[macro_export]
        macro_rules! $tests {
            ($dollar fixture:ident) => {
                $(mod $topic {
                    $(#[test]
                    fn $clause() {
                        let name = concat!(stringify!($topic), "::", stringify!($clause));
                        $dollar crate::testing::conformance::run(name, &super::$dollar fixture());
                    })+
                })+
            };
        }
    };
}
