// SPDX-License-Identifier: BSD-3-Clause
//
// Teams: the number of threads that a kernel may use.
//
// libgomp keeps a team for each thread that ever ran a parallel region, and once all teams together
// have more threads than there are cores, it stops spinning, so every region pays for futex
// wake-ups (measured on 2 cores: an inference of 0.54 ms took 2.3 ms). Therefore only the driver's
// executor thread has a team; kernels on other threads (inline on the caller, or on a stream's
// worker) run with one thread. The setting is thread-local.
//
// A host thread that also computes on the CPU, for example to initialize a model, has its own team.
// The team is dissolved when that thread later launches parallel kernels (yield_team); the thread's
// next parallel region starts it again, which takes about 50 us.
#ifndef ATEN_LAUNCH_TEAM_H_
#define ATEN_LAUNCH_TEAM_H_

namespace openreg {

// Returns torch.get_num_threads() of the calling thread, which is the launching thread.
int team_size();

// Dissolves the calling thread's own team, if any; must be called before a parallel launch. Only
// one in eight calls dissolves it, so that a program that alternates between both kinds of work
// does not restart the threads each time.
void yield_team();

// Makes kernels on this device thread use `threads` threads from now on.
void set_team(int threads);

// Makes kernels on this host thread use `threads` threads during its lifetime.
class TeamScope {
 public:
  explicit TeamScope(int threads);
  ~TeamScope();
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  int previous_;
  int threads_;
};

}  // namespace openreg

#endif  // ATEN_LAUNCH_TEAM_H_
