#include "runtime/support/ChildProcess.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace tessera {

StatusOr<ChildProcess>
ChildProcess::start(const std::vector<std::string> &words,
                    std::span<const Descriptor> descriptors) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const Descriptor &each : descriptors)
    posix_spawn_file_actions_adddup2(&actions, each.ours, each.theirs);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<char *> arguments;
  for (const std::string &word : words)
    arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  ChildProcess child;
  const int code = posix_spawn(&child.process, words[0].c_str(), &actions,
                               &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) {
    child.process = -1;
    return Status::error("cannot start {}: {}", words[0], std::strerror(code));
  }
  return child;
}

void ChildProcess::end() {
  if (process < 0)
    return;
  ::kill(-process, SIGKILL);
  while (::waitpid(process, nullptr, 0) < 0 && errno == EINTR)
    ;
  process = -1;
}

std::string ChildProcess::ending() {
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 20 && ended == 0; ++i) {
    ended = ::waitpid(process, &status, WNOHANG);
    if (ended == 0)
      ::usleep(5000);
  }
  if (ended != process) {
    end();
    return "closed its output";
  }
  // The group may have members still.
  ::kill(-process, SIGKILL);
  process = -1;
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("exited with code {}", WEXITSTATUS(status));
}

} // namespace tessera
