// Draws markup that nothing changes as one component (atlas/markup.py): elements by React, texts as texts.
(function () {
    const drawn = (node) =>
        Array.isArray(node) ? React.createElement(node[0], node[1], ...node.slice(2).map(drawn)) : node;
    const Markup = ({tree}) => React.createElement(React.Fragment, null, ...tree.map(drawn));
    window.atlas_markup = {Markup};
    // At every change of the page these ask whether anything inside them has changed. What is inside ours tells so itself.
    for (const type of ["Tooltip", "PopoverDropdown"]) delete window.dash_mantine_components?.[type]?.dashChildrenUpdate;
})();
