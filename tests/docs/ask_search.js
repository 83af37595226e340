// Asks the search of the built site, by the script that a browser runs for it as a worker.
//
//     node ask_search.js SITE < QUERIES.json
//
// Prints a JSON object: for each query the places that it found, best first, ten at most.

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [SET_UP, QUERY] = [0, 2]; // kinds of messages to the worker

async function main(site, queries) {
    const folder = path.join(site, "assets", "javascripts", "workers");
    const name = fs.readdirSync(folder).find((file) => file.startsWith("search."));
    const index = JSON.parse(fs.readFileSync(path.join(site, "search.json"), "utf8"));
    let answered;
    const worker = { postMessage: (message) => answered(message) };
    vm.runInNewContext(fs.readFileSync(path.join(folder, name), "utf8"), { self: worker, Intl });
    const ask = (type, data) =>
        new Promise((resolve) => {
            answered = resolve;
            worker.onmessage({ data: { type, data } });
        });

    await ask(SET_UP, index);
    const found = {};
    for (const input of queries) {
        const nothing = { type: "operator", data: { operator: "and", operands: [] } };
        const filter = { input: nothing, aggregation: { input: [] } };
        const answer = await ask(QUERY, { input, filter });
        found[input] = answer.data.items.map((item) => index.items[item.id].location);
    }
    console.log(JSON.stringify(found));
}

main(process.argv[2], JSON.parse(fs.readFileSync(0, "utf8")));
