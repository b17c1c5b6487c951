// Messages between a learner and its workers: they read back as they were, and
// damaged ones are errors.
#include "runtime/rl/WorkerMessages.h"
#include "runtime/support/SplitMix64.h"

#include <gtest/gtest.h>

#include <sys/socket.h>

namespace tessera::rl {
namespace {

Hello someHello() {
  return {
      64,
      16,
      {{"wte.weight", SafetensorsType::bf16, {5, 3}, StateRole::parameter, 30},
       {"scale", SafetensorsType::f32, {}, StateRole::parameter, 4}}};
}

NumberedSamples someSamples() {
  return {7,
          {{.tokens = {1, 2},
            .logProbs = {-0.5F, -1.25F},
            .versions = {3, 4},
            .isCut = true},
           {.tokens = {9}, .logProbs = {-0.0F}, .versions = {4}}}};
}

NumberedRequest someRequest() {
  return {12, {{4, 5, 6}, {1, ~uint64_t(0)}, 0.5F, 30, {0, 2}}};
}

WorkerJob someJob() {
  return {"{\"hidden_size\": 64}", "task: policy\n", {"optimizer.lr=1"}, 17};
}

/// What a peer makes of a payload; true: it is accepted.
bool isAccepted(MessageKind kind, std::span<const std::byte> payload) {
  std::span<const std::byte> rest;
  switch (kind) {
  case MessageKind::hello:
    return unpackHello(payload).ok();
  case MessageKind::weights:
    return unpackWeights(payload, rest).ok();
  case MessageKind::request:
    return unpackRequest(payload).ok();
  case MessageKind::samples:
    return unpackSamples(payload).ok();
  case MessageKind::failure:
    return unpackFailure(payload).ok();
  case MessageKind::job:
    return unpackJob(payload).ok();
  case MessageKind::updated:
    return unpackUpdated(payload).ok();
  case MessageKind::end:
    return unpackEnd(payload).ok();
  case MessageKind::alive:
    return payload.empty();
  }
  return false;
}

std::vector<Message> someMessages() {
  return {pack(someHello()),
          pack(WeightsHeader{3, {0, 2}}),
          pack(someRequest()),
          pack(someSamples()),
          pack(NumberedFailure{5, "sampling: the device is gone"}),
          pack(someJob()),
          pack(Updated{3}),
          pack(End{"samples with another model"})};
}

TEST(WorkerMessagesTest, ReadBackAsTheyWere) {
  auto hello = unpackHello(pack(someHello()).payload);
  ASSERT_TRUE(hello.ok()) << hello.message();
  EXPECT_EQ(hello->context, 64);
  EXPECT_EQ(hello->sequences, 16);
  ASSERT_EQ(hello->parameters.size(), 2u);
  EXPECT_EQ(hello->parameters[0].name, "wte.weight");
  EXPECT_EQ(hello->parameters[0].shape, (std::vector<uint64_t>{5, 3}));
  EXPECT_EQ(hello->parameters[0].size, 30u);
  EXPECT_EQ(hello->parameters[1].type, SafetensorsType::f32);
  EXPECT_EQ(hello->parameters[1].size, 4u);

  auto request = unpackRequest(pack(someRequest()).payload);
  ASSERT_TRUE(request.ok()) << request.message();
  EXPECT_EQ(request->id, 12u);
  EXPECT_EQ(request->request.prompt, (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(request->request.seeds, (std::vector<uint64_t>{1, ~uint64_t(0)}));
  EXPECT_EQ(request->request.temperature, 0.5F);
  EXPECT_EQ(request->request.maxTokens, 30);
  EXPECT_EQ(request->request.stopTokens, (std::vector<int32_t>{0, 2}));

  auto samples = unpackSamples(pack(someSamples()).payload);
  ASSERT_TRUE(samples.ok()) << samples.message();
  EXPECT_EQ(samples->id, 7u);
  ASSERT_EQ(samples->samples.size(), 2u);
  EXPECT_EQ(samples->samples[0].tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(samples->samples[0].versions, (std::vector<uint32_t>{3, 4}));
  EXPECT_TRUE(samples->samples[0].isCut);
  EXPECT_FALSE(samples->samples[1].isCut);
  EXPECT_TRUE(std::signbit(samples->samples[1].logProbs[0]));

  auto job = unpackJob(pack(someJob()).payload);
  ASSERT_TRUE(job.ok()) << job.message();
  EXPECT_EQ(job->config, someJob().config);
  EXPECT_EQ(job->recipe, someJob().recipe);
  EXPECT_EQ(job->set, someJob().set);
  EXPECT_EQ(job->longestPrompt, 17);
  EXPECT_EQ(unpackUpdated(pack(Updated{3}).payload)->version, 3u);
  EXPECT_EQ(unpackEnd(pack(End{"why"}).payload)->refusal, "why");
}

TEST(WorkerMessagesTest, ShortOnesAreErrors) {
  for (const Message &message : someMessages())
    for (std::size_t size = 0; size < message.payload.size(); ++size)
      if (message.kind != MessageKind::weights)
        EXPECT_FALSE(
            isAccepted(message.kind, std::span(message.payload).first(size)))
            << int(message.kind) << " of " << size << " bytes";
}

TEST(WorkerMessagesTest, DamagedOnesAreReadWithoutHarm) {
  SplitMix64 random(5);
  for (const Message &message : someMessages())
    for (int i = 0; i < 2000; ++i) {
      std::vector<std::byte> payload = message.payload;
      for (uint64_t changes = 1 + random() % 4; changes > 0; --changes)
        payload[random() % payload.size()] = std::byte(random());
      (void)isAccepted(message.kind, payload);
    }
}

TEST(WorkerMessagesTest, ANumberOfElementsThatIsNotThereIsNotAllocated) {
  Message message = pack(someRequest());
  // The length of the prompt, after id, temperature and maxTokens.
  const uint64_t huge = ~uint64_t(0) / 8;
  std::memcpy(&message.payload[20], &huge, sizeof(huge));
  EXPECT_FALSE(unpackRequest(message.payload).ok());
}

TEST(WorkerMessagesTest, FramesCross) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Connection first{comm::Socket(ends[0])};
  auto second = std::make_unique<Connection>(comm::Socket(ends[1]));
  const std::byte more[] = {std::byte(1), std::byte(2)};
  const std::span<const std::byte> pieces[] = {more, more};
  const Message sent = pack(WeightsHeader{3, {0, 2}});
  ASSERT_TRUE(first.send(sent, pieces).ok());
  auto got = second->receive(1000);
  ASSERT_TRUE(got.ok() && *got) << got.message();
  std::span<const std::byte> rest;
  auto header = unpackWeights((*got)->payload, rest);
  ASSERT_TRUE(header.ok()) << header.message();
  EXPECT_EQ(header->parameters, (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(rest.size(), 4u);
  // One that is too long is refused before it is read.
  ASSERT_TRUE(first.send(sent, pieces).ok());
  EXPECT_FALSE(second->receive(10).ok());
  second.reset();
  auto nothing = first.receive(1000);
  ASSERT_TRUE(nothing.ok()) << nothing.message();
  EXPECT_FALSE(*nothing);
  EXPECT_FALSE(first.send(sent).ok() && first.send(sent).ok());
}

} // namespace
} // namespace tessera::rl
