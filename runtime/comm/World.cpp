#include "runtime/comm/Algorithms.h"
#include "runtime/comm/Channel.h"
#include "runtime/comm/Engine.h"
#include "runtime/comm/MpiTransport.h"
#include "runtime/comm/ThreadTransport.h"
#include "runtime/comm/tcp/TcpTransport.h"

namespace tessera::comm {

const Group &Channel::group() const { return state.group; }
int Channel::member() const { return state.me; }
int Channel::id() const { return state.id; }

Status Channel::prepare(const Collective &collective) {
  TESSERA_RETURN_IF_ERROR(checkCollective(collective, state.group, state.me));
  const std::uint64_t bytes =
      stagingBytes(collective, state.group.size(), state.me);
  try {
    if (state.staging.size() < bytes)
      state.staging.resize(bytes);
  } catch (const std::bad_alloc &) {
    return Status::error("{}: no memory for {} bytes of messages",
                         nameOf(collective), bytes);
  }
  return Status::success();
}

StatusOr<Ticket> Channel::start(const Collective &collective) {
  return engine.start(state, collective);
}

Status Channel::wait(Ticket ticket) { return engine.wait(ticket); }

Status Channel::run(const Collective &collective) {
  StatusOr<Ticket> ticket = start(collective);
  return ticket.ok() ? wait(*ticket) : ticket.status();
}

World::World(std::unique_ptr<Engine> engine) : engine(std::move(engine)) {}
World::~World() = default;

std::unique_ptr<World> World::over(std::unique_ptr<Transport> transport,
                                   WorldOptions options) {
  return std::unique_ptr<World>(new World(
      std::make_unique<Engine>(std::move(transport), std::move(options))));
}

StatusOr<std::unique_ptr<World>> World::join(const Launch &launch,
                                             WorldOptions options) {
  if (launch.size == 1)
    return over(std::move(ThreadTransport::create(1, {}).front()),
                std::move(options));
  const bool hasMpi = launch.starter == Launch::Starter::openMpi ||
                      launch.starter == Launch::Starter::mpich;
  StatusOr<std::unique_ptr<Transport>> transport =
      hasMpi ? joinMpi(launch) : joinTcp(launch, options.timeout);
  if (!transport.ok())
    return transport.status();
  return over(transport.take(), std::move(options));
}

int World::rank() const { return engine->rank(); }
int World::size() const { return engine->size(); }

StatusOr<Channel *> World::open(int id, Group group) {
  return engine->open(id, std::move(group));
}

Status World::leave() { return engine->leave(); }

} // namespace tessera::comm
