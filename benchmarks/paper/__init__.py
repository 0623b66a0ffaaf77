"""The experiments of Kuang et al. (ICML 2025), rerun: suites of the leaderboard, and reports of their records."""
