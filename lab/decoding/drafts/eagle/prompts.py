"""Prompts for the head's data: templates times topics of several kinds, both split into a training and a held-out part.

A held-out prompt joins a held-out template with a held-out topic, so that neither was seen in training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HELD_OUT = 5
"""Of each list of templates and of topics, every fifth entry is held out."""


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        kind: a key of `KINDS`.
        text: the user's message, or the text to continue.
        chat: whether it goes through the model's chat template.
        temperature: at which the model's answer is drawn; 0 is greedy.
    """

    kind: str
    text: str
    chat: bool
    temperature: float


GENERAL = (
    "photosynthesis", "the French Revolution", "black holes", "bread baking", "the stock market", "volcanoes",
    "the human heart", "chess", "renewable energy", "the Roman Empire", "dolphins", "machine learning", "jazz music",
    "the water cycle", "vaccines", "ancient Egypt", "the internet", "meditation", "earthquakes", "the moon landing",
    "gardening", "inflation", "the Great Wall of China", "DNA", "football", "climate change", "bees", "the violin",
    "time management", "the Renaissance", "nuclear power", "coffee", "sleep", "dinosaurs", "democracy", "photography",
    "the Amazon rainforest", "probability", "public speaking", "the solar system", "recycling", "Shakespeare",
    "the immune system", "electric cars", "mountain climbing", "supply and demand", "the Olympic Games", "tides",
    "learning a language", "antibiotics", "the printing press", "yoga", "robots", "the Pacific Ocean", "poetry",
    "credit cards", "evolution", "bridges", "healthy breakfasts", "the Vikings", "gravity", "wildfires", "hiking",
    "the Cold War", "cheese", "computer viruses", "the nervous system", "job interviews", "whales", "steam engines",
    "the piano", "rainbows", "penguins", "space telescopes", "saving money", "the Silk Road", "mushrooms", "lightning",
    "stress", "tropical storms", "the periodic table", "birds of prey", "swimming", "the Industrial Revolution",
    "friendship", "solar panels", "coral reefs", "the Himalayas", "board games", "batteries", "chocolate", "exercise",
    "the ozone layer", "online shopping", "wolves", "glaciers", "cryptography", "the Aztecs", "tea", "airplanes",
    "the scientific method", "deserts", "teamwork", "butterflies", "microscopes", "the Mediterranean diet", "trains",
    "artificial intelligence", "the Ice Age", "parenting", "the digestive system", "opera", "pollution", "calculus",
    "elephants", "tax", "the Black Death", "cloud computing", "forests", "painting", "the United Nations", "rice",
    "hearing", "satellites", "a balanced diet", "the history of mathematics", "magnets", "running a small business",
    "kindness", "the human brain", "fishing", "databases", "snow", "castles", "graph theory", "the desert fox",
)  # fmt: skip

HEROES = (
    "a shy librarian", "a retired sailor", "a young inventor", "two brothers", "a lonely robot", "a clever fox",
    "a baker's daughter", "an old clockmaker", "a curious cat", "a travelling musician", "a tired detective",
    "a girl named Lily", "a brave little mouse", "a lighthouse keeper", "a king without a crown", "a student pilot",
    "a painter who lost her sight", "a boy and his dragon", "a village doctor", "an astronaut", "a gardener named Tom",
    "a forgetful wizard", "a nurse on the night shift", "a farmer and his dog", "a chess champion",
)  # fmt: skip

TASKS = (
    "reverses a string", "computes the factorial of a number", "checks whether a number is prime", "sorts a list",
    "counts the words in a text", "finds the largest element of a list", "merges two sorted lists", "reads a CSV file",
    "removes duplicates from a list", "computes the Fibonacci numbers", "checks whether a word is a palindrome",
    "adds two matrices", "converts Celsius to Fahrenheit", "searches a sorted list by halves", "counts vowels",
    "computes the average of a list", "flattens a nested list", "finds common elements of two lists", "rolls a dice",
    "computes the greatest common divisor", "validates an email address", "draws a triangle of stars",
    "groups words by their first letter", "finds the second largest number", "computes compound interest",
    "implements a stack", "implements a queue with two stacks", "counts the digits of a number", "rotates a list",
    "prints the multiplication table", "finds all anagrams of a word", "computes the area of a circle",
    "encodes a text with a Caesar cipher", "downloads a web page", "writes a log file", "parses a date",
)  # fmt: skip

QUESTIONS = (
    "Why is the sky blue?", "How do I learn to cook?", "What is the capital of Japan?", "Who wrote Don Quixote?",
    "How many continents are there?", "What should I pack for a trip to the mountains?", "How does a car engine work?",
    "Can you help me write a birthday card for my sister?", "What is the difference between a virus and a bacterium?",
    "How can I fall asleep faster?", "What causes inflation?", "Who was Marie Curie?", "What is 15 percent of 240?",
    "How do plants drink water?", "Why do we dream?", "What are good names for a dog?",
    "How do I remove a coffee stain?",
    "What is the fastest animal?", "How do I ask my boss for a raise?", "What is the meaning of life?",
    "How long does it take to fly from Paris to New York?", "What makes a good friend?", "How are mountains formed?",
    "What is a healthy lunch for work?", "Why is the sea salty?", "How do I start running?",
    "Who invented the telephone?",
    "What is the largest planet?", "How do I write a cover letter?", "What is an algorithm?", "How do magnets work?",
    "What are the primary colours?", "How can I be more productive?", "What is the best way to study for an exam?",
    "Why do leaves change colour in autumn?", "What does a software engineer do?", "How do I make pancakes?",
    "What is the square root of 144?", "Tell me about yourself.", "Give me a fun fact.", "Is it safe to eat raw fish?",
    "How do vaccines protect us?", "What is quantum physics?", "Which books should everybody read?", "What is a noun?",
    "How do I change a flat tyre?", "What happens when water boils?", "How do I keep my plants alive?",
    "What is the history of the bicycle?", "Can you explain how elections work?",
)  # fmt: skip

PASSAGES = (
    "The town library opened in 1911 with four hundred books, most of them given by a retired teacher. During "
    "the flood "
    "of 1953 the ground floor stood under water for nine days, and volunteers carried the books to the church tower. "
    "Today the library lends films, tools and musical instruments as well, and every Thursday children read to dogs.",
    "Honeybees tell each other where food is by dancing. A bee that has found flowers runs in a figure of eight on the "
    "comb; the angle of the middle line shows the direction relative to the sun and the length of the run the "
    "distance. "
    "Other bees follow with their antennae and then fly out to look.",
    "Our team moved the online shop to new servers last weekend. The move took six hours instead of four because one "
    "database had grown larger than planned. No orders were lost, but customers saw slow pages on Sunday morning. "
    "We will add more memory this week and write a better checklist for the next move.",
    "Concrete was known to the Romans, who mixed lime with volcanic ash. Their harbour walls have stood in sea "
    "water for "
    "two thousand years and grow stronger with time, since minerals fill the cracks. Modern concrete sets faster and "
    "carries more at first, but steel inside it rusts, and many bridges need repair after fifty years.",
    "Anna planned to walk the coast path in eight days. On the third day her boots split, and a fisherman lent her his "
    "spare pair, two sizes too large. She arrived a day late, with wet feet and a new friend, and said that she would "
    "not have changed a thing.",
    "Sleep has stages. In deep sleep the body repairs muscles and the brain stores facts; in the stage with fast eye "
    "movements we dream, and skills settle. Most adults need seven to nine hours. Light from screens in the evening "
    "delays sleep, and coffee stays in the blood for six hours or more.",
    "The council discussed three plans for the old market hall. The first would keep it as it is and repair the roof. "
    "The second would add flats above the stalls. The third would tear it down and build a car park. Most speakers "
    "preferred the first plan, but the treasurer warned that there is money for half of it.",
    "Potatoes came to Europe from South America in the sixteenth century. At first people grew them for their flowers "
    "and thought them poisonous. By 1800 they fed much of the continent, since a field of potatoes feeds twice as many "
    "people as a field of wheat. When a mould destroyed the harvest in Ireland, a million people died.",
    "A compiler turns a program into machine code before it runs; an interpreter reads it line by line while it runs. "
    "Compiled programs are usually faster, interpreted ones easier to change and to test. Many languages today "
    "do both: "
    "they start by interpreting and compile the parts that run often.",
    "The company sold 1,200 bicycles in spring, 300 more than the year before. Electric models made up almost half of "
    "the sales. Repairs brought in less, because two mechanics were ill in April. The owner wants to open a second "
    "workshop near the station and is looking for three new employees.",
    "Lake Baikal in Siberia is the deepest lake on Earth and holds a fifth of the fresh water that is not ice. It is "
    "about twenty-five million years old. Seals live in it, hundreds of kilometres from the sea, and nobody is certain "
    "how they came there. In winter lorries drive on its ice.",
    "Dear Mr Brown, thank you for your offer to repair our heating. We would like to accept it, but we ask you "
    "to begin "
    "a week later, since our neighbours are away and hold the key to the cellar. Please bring the new pump with you. "
    "If the price changes, let us know before the work starts.",
)

CONTINUE_ABOUT = (
    "The history of {t} begins", "{T} is one of the most", "In this article, we will discuss {t}.",
    "Chapter 1\n\n{T}\n\n",
    "The most important thing to know about {t} is", "Many people believe that {t}", "Introduction to {t}\n\n",
    "When I first heard about {t}, I", "Researchers have recently found that {t}", "# {T}\n\n## Overview\n\n",
    "Q: What is {t}?\nA:", "The three main facts about {t} are:\n\n1.", "According to experts, {t}",
    "Lesson plan: {t}\n\n",
    "Last year, our class visited a museum to learn about {t}.",
)  # fmt: skip

KINDS: dict[str, tuple[bool, tuple[str, ...], tuple[str, ...]]] = {
    "chat": (True, ("{t}", "{t} Please answer in two sentences.", "I have a question: {t}", "{t} Explain it simply.",
                    "Please help me. {t}", "{t} Answer in detail.", "My son asks: {t}"), QUESTIONS),
    "explain": (True, ("Explain {t} to a child.", "What is {t}?", "Describe {t} in a few sentences.",
                       "Why is {t} important?", "Write a short essay about {t}.", "How does {t} affect our lives?",
                       "Tell me something interesting about {t}.", "What should a beginner know about {t}?",
                       "Write an introduction to {t} for a school book.", "What are common mistakes about {t}?"),
                       GENERAL),
    "list": (True, ("Give me five facts about {t}.", "List the advantages and disadvantages of {t}.",
                    "Write ten questions about {t} for a quiz.", "List three books or films about {t} and say why.",
                    "Give step by step advice on {t}.", "Make a table of contents for a book about {t}.",
                    "What are the main ideas behind {t}? Use bullet points."), GENERAL),
    "story": (True, ("Write a short story about {t}.", "Tell me a bedtime story about {t}.",
                     "Write a poem about {t}.", "Write the first page of a novel about {t}.",
                     "Write a funny story about {t} on a rainy day.", "Write a dialogue between {t} and a stranger.",
                     "Tell how {t} found a hidden door."), HEROES),
    "code": (True, ("Write a Python function that {t}.", "Write a program that {t} and explain how it works.",
                    "Show me code that {t}, with comments.", "How would you write a JavaScript function that {t}?",
                    "Write a Python function that {t}, with a test.", "I need a short script that {t}."), TASKS),
    "code text": (False, ("# A Python function that {t}\ndef ", "Here is a function that {t}:\n\n```python\n",
                          'def main():\n    """Program that {t}."""\n', "// {t}\nfunction ",
                          "The following Python code {t}.\n\n"), TASKS),
    "summary": (True, ("Summarise this text:\n\n{t}", "Give this text a title and explain your choice.\n\n{t}",
                       "{t}\n\nWhat are the main points of this text?", "Rewrite this text in simple words:\n\n{t}",
                       "{t}\n\nWrite three questions about this text and answer them.",
                       "Read the text and continue it.\n\n{t}"), PASSAGES),
    "continue": (False, CONTINUE_ABOUT, GENERAL),
    "tale": (False, ("Once upon a time, there was {t}", "It was a dark night, and {t}", "Nobody in the town knew {t}",
                     "This is the story of {t}. ", "\"Where have you been?\" asked {t}.", "Every morning, {t}"),
                     HEROES),
}  # fmt: skip

SHARES = {
    "chat": 0.14, "explain": 0.2, "list": 0.13, "story": 0.1, "code": 0.12, "code text": 0.05, "summary": 0.08,
    "continue": 0.12, "tale": 0.06,
}  # fmt: skip


def split(entries: tuple[str, ...], *, held_out: bool) -> list[str]:
    """The part of a list that is kept for training or for evaluation."""
    return [entry for i, entry in enumerate(entries) if (i % HELD_OUT == HELD_OUT - 1) == held_out]


def make_prompts(count: int, *, held_out: bool, seed: int) -> list[Prompt]:
    """`count` prompts (fewer where held-out pairs run out) in random order, the kinds mixed by `SHARES`.

    Temperatures are 1, 0.7 and 0 (half, a quarter, a quarter); held out 1 and 0, half each. A training pair that is
    used again is never sampled at 0, where it would give the same text.
    """
    rng = np.random.default_rng(seed)
    prompts: list[Prompt] = []
    for kind, (chat, templates, topics) in KINDS.items():
        pairs = [(a, t) for a in split(templates, held_out=held_out) for t in split(topics, held_out=held_out)]
        order = rng.permutation(len(pairs))
        wanted = round(count * SHARES[kind])
        for use in range(min(wanted, len(pairs)) if held_out else wanted):
            template, topic = pairs[order[use % len(pairs)]]
            text = template.replace("{t}", topic).replace("{T}", topic[:1].upper() + topic[1:])
            warm = (1.0, 0.0) if held_out else (1.0, 0.7, 1.0, 0.0) if use < len(pairs) else (1.0, 0.7)
            prompts.append(Prompt(kind, text, chat, warm[use % len(warm)]))
    return [prompts[i] for i in rng.permutation(len(prompts))]
