// Numbered pieces of work, shared out among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

namespace tsattn {

// Room of a thread's own for intermediate results.
class Scratch {
 public:
  explicit Scratch(int64_t numbers) : at_((float*)std::aligned_alloc(64, (numbers * 4 + 63) / 64 * 64)) {
    if (!at_) throw std::bad_alloc();
  }
  ~Scratch() { std::free(at_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  float* take(int64_t numbers) {
    float* part = at_ + used_;
    used_ += (numbers + 15) / 16 * 16;  // whole cache lines
    return part;
  }
  static int64_t room(int64_t numbers) { return (numbers + 15) / 16 * 16; }

 private:
  float* at_;
  int64_t used_ = 0;
};

// Calls work(number, state) once for each number below `count`; make_state() is called once on each thread. Of the
// problem, `threads` and `parallel` count.
template <class Problem, class MakeState, class Work>
void share_out(const Problem& p, int64_t count, MakeState make_state, Work work) {
  struct Team {
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    int64_t count;
    MakeState& make_state;
    Work& work;
    void run() {
      try {
        auto state = make_state();
        for (int64_t i; (i = next.fetch_add(1)) < count;) work(i, *state);
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    }
  } team{{0}, {false}, count, make_state, work};
  const unsigned threads = (unsigned)std::min<int64_t>(p.threads, count);
  if (threads <= 1) {
    team.run();
  } else if (p.parallel) {
    p.parallel([](void* t) { ((Team*)t)->run(); }, &team, threads, 0);
  } else {
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; i++) others.emplace_back([&team] { team.run(); });
    team.run();
    for (auto& other : others) other.join();
  }
  if (team.failed) throw std::bad_alloc();
}

}  // namespace tsattn
