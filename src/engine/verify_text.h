// The text whose perplexity verify() measures. Written for this purpose, so that no model was
// trained on it; never change it, the known perplexities belong to these bytes.
#pragma once

namespace kapitsa::engine {

inline constexpr char kVerifyText[] =
    "The lighthouse keeper had a habit that nobody in the village understood. Every evening, "
    "before he climbed the stairs to light the lamp, he wrote one sentence about the sea into a "
    "grey notebook. He did not write about storms or ships, which other people would have found "
    "interesting. He wrote about the colour of the water near the rocks, about the direction from "
    "which the gulls came home, and about how long the foam stayed on the sand after a wave had "
    "gone back.\n\n"
    "When he retired, a student from the university asked whether she could read the notebooks. "
    "There were forty-one of them, one for each year of his service, and they stood in a row above "
    "his kitchen table. She copied the numbers into a computer and made a chart. The foam, it "
    "turned out, lasted a little longer every decade. Nobody had measured such a thing before, "
    "because nobody had thought that it could change. Two years later a team of chemists found "
    "the reason: the water carried more and more of a substance that washes out of fields in "
    "spring, and it made the bubbles stronger.\n\n"
    "The keeper was not surprised. He said that when you look at the same thing every day, you "
    "do not need to be clever, you only need to be patient and to write down what you see. The "
    "student replied that most people are patient for a week. He laughed and poured her another "
    "cup of tea.\n\n"
    "There is a lesson in this story for anyone who builds machines. A single measurement tells "
    "you very little, since it may have been taken on a bad day. A hundred measurements taken in "
    "the same way, by the same person, at the same hour, can show a change that is smaller than "
    "the error of each of them. For example, suppose that a program takes ten seconds on Monday "
    "and eleven seconds on Tuesday. Did it become slower? You cannot know. But if it took ten "
    "seconds on fifty mornings and eleven seconds on the next fifty, then something has "
    "happened, and it is worth the trouble to find out what.\n\n"
    "The notebooks are now kept in a museum, behind glass, open at the last page. The final "
    "sentence says only this: the water was green today, and I did not want to leave.\n";

}  // namespace kapitsa::engine
