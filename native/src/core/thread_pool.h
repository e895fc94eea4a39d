// SPDX-License-Identifier: Apache-2.0
// A small pool whose workers take tasks one by one, so that a core busy with something else only does fewer of them.
//
// Workers start on first use, spin briefly for the next job and then sleep. The pool belongs to a delegate; it never
// outlives it and holds no static state. After fork() the child has no workers: the pool notices the new process id
// and starts afresh. A second thread that calls Run while the pool is busy does its tasks itself.
#ifndef LITESMITH_CORE_THREAD_POOL_H_
#define LITESMITH_CORE_THREAD_POOL_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>

namespace litesmith {

class ThreadPool {
 public:
  using Task = std::function<void(int task, int worker)>;

  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls task(i, worker) once for each i in [0, num_tasks) and returns when all have returned. `worker` is in
  // [0, num_threads) and no two calls with the same worker run at the same time.
  void Run(int num_tasks, const Task& task);

 private:
  struct Crew;  // the threads of one process
  Crew* CrewOfThisProcess();

  const int num_threads_;
  std::mutex busy_;
  std::unique_ptr<Crew> crew_;
  pid_t owner_ = 0;
};

}  // namespace litesmith

#endif  // LITESMITH_CORE_THREAD_POOL_H_
