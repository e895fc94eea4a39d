// SPDX-License-Identifier: Apache-2.0
// See thread_pool.h.
#include "core/thread_pool.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace litesmith {
namespace {

// About 20 us: longer than the gap between two operators, shorter than anybody would notice as a busy core.
constexpr int kSpinRounds = 2000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The tasks of one worker: it takes them from the front, others who have none left from the back.
struct alignas(64) Share {
  std::atomic<int> left{0}, front{0}, back{0};

  // Returns a task, or -1. Who has made `left` one less owns one task of those between `front` and `back`.
  int Take() { return left.fetch_sub(1) > 0 ? front.fetch_add(1) : -1; }
  int Steal() { return left.fetch_sub(1) > 0 ? back.fetch_sub(1) - 1 : -1; }
};

// One call of Run. Shared with the workers, so that one who wakes late finds no task left instead of a dead job:
// Run waits for tasks, never for a worker the system has not scheduled.
//
// Each worker begins with neighbouring tasks, the same part of every operator: what it reads is then mostly what it
// wrote, and still in its cache.
struct Job {
  Job(const ThreadPool::Task& task, int num_tasks, int num_workers)
      : task(&task), total(num_tasks), shares(num_workers) {
    for (int w = 0; w < num_workers; ++w) {
      const int front = static_cast<int>(static_cast<int64_t>(num_tasks) * w / num_workers);
      const int back = static_cast<int>(static_cast<int64_t>(num_tasks) * (w + 1) / num_workers);
      shares[w].front.store(front, std::memory_order_relaxed);
      shares[w].back.store(back, std::memory_order_relaxed);
      shares[w].left.store(back - front, std::memory_order_relaxed);
    }
  }

  // Returns whether this call finished the last task.
  bool TakeTasks(int worker) {
    bool last = false;
    const auto run = [&](int i) {
      (*task)(i, worker);
      last = done.fetch_add(1) + 1 == total;
    };
    for (int i = shares[worker].Take(); i >= 0; i = shares[worker].Take()) run(i);
    const int workers = static_cast<int>(shares.size());
    for (int other = 1; other < workers; ++other) {
      Share& share = shares[(worker + other) % workers];
      for (int i = share.Steal(); i >= 0; i = share.Steal()) run(i);
    }
    return last;
  }

  const ThreadPool::Task* task;  // valid while a task is unfinished
  const int total;
  std::vector<Share> shares;
  std::atomic<int> done{0};
};

}  // namespace

struct ThreadPool::Crew {
  explicit Crew(int num_workers) {
    threads.reserve(num_workers);
    for (int i = 0; i < num_workers; ++i) {
      try {
        threads.emplace_back([this, i] { WorkerLoop(i + 1); });
      } catch (const std::system_error&) {
        break;  // the machine gives no more threads: those that there are do the work
      }
    }
  }

  ~Crew() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
      generation.fetch_add(1);
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void Run(int num_tasks, const Task& task) {
    auto mine = std::make_shared<Job>(task, num_tasks, static_cast<int>(threads.size()) + 1);
    {
      std::lock_guard<std::mutex> lock(mutex);
      job = mine;
      generation.fetch_add(1);
    }
    wake.notify_all();
    mine->TakeTasks(0);
    for (int spins = 0; spins < kSpinRounds && mine->done.load() != num_tasks; ++spins) Pause();
    if (mine->done.load() == num_tasks) return;
    std::unique_lock<std::mutex> lock(mutex);
    finished.wait(lock, [&] { return mine->done.load() == num_tasks; });
  }

  void WorkerLoop(int worker) {
    uint64_t seen = 0;
    while (true) {
      for (int spins = 0; spins < kSpinRounds && generation.load() == seen; ++spins) Pause();
      std::shared_ptr<Job> mine;
      {
        std::unique_lock<std::mutex> lock(mutex);
        wake.wait(lock, [&] { return generation.load() != seen; });
        seen = generation.load();
        if (stopping) return;
        mine = job;
      }
      if (mine->TakeTasks(worker)) {
        std::lock_guard<std::mutex> lock(mutex);
        finished.notify_one();
      }
    }
  }

  std::vector<std::thread> threads;
  std::mutex mutex;  // guards job and stopping
  std::condition_variable wake, finished;
  std::atomic<uint64_t> generation{0};
  std::shared_ptr<Job> job;
  bool stopping = false;
};

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads < 1 ? 1 : num_threads) {}

ThreadPool::~ThreadPool() {
  // In a forked child the threads behind the handles do not exist: joining would wait for ever.
  if (crew_ && owner_ != getpid()) crew_.release();
}

ThreadPool::Crew* ThreadPool::CrewOfThisProcess() {
  const pid_t me = getpid();
  if (crew_ && owner_ != me) crew_.release();
  if (!crew_) {
    crew_ = std::make_unique<Crew>(num_threads_ - 1);
    owner_ = me;
  }
  return crew_.get();
}

void ThreadPool::Run(int num_tasks, const Task& task) {
  if (num_threads_ > 1 && num_tasks > 1 && busy_.try_lock()) {
    std::lock_guard<std::mutex> lock(busy_, std::adopt_lock);
    CrewOfThisProcess()->Run(num_tasks, task);
    return;
  }
  for (int i = 0; i < num_tasks; ++i) task(i, 0);
}

}  // namespace litesmith
